package inspect_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/config"
)

// savedCalls writes a file of calls to the tool t.
func savedCalls(t *testing.T, calls ...string) string {
	return file(t, "calls.json", "{\n\"calls\": [\n"+strings.Join(calls, ",\n")+"\n]}\n")
}

// Calls of a file are made over one connection, and compared with what is expected of them.
func TestSaved(t *testing.T) {
	const result = `{"content":[{"type":"text","text":"hello"}],"structuredContent":{"n":1.0,"big":12345678901234567890,"list":[{"a":null}]}}`
	call := func(expect string) string {
		return `{"name":"one","server":"files","tool":"t","revision":"2026-07-28","arguments":{"n":12345678901234567890},"expect":{` + expect + `}}`
	}
	for _, test := range []struct {
		name, call, answer, fault string
	}{
		{"as expected", call(`"within":"10m","equals":{"content.0.text":"hello","structuredContent.n":1,"structuredContent.big":12345678901234567890,"structuredContent.list":[{"a":null}]}`), `"result":` + result, ""},
		{"without expectations", `{"server":"*","tool":"t"}`, `"result":` + result, ""},
		{"the name of the tool", `{"name":"t","server":"*","tool":"t"}`, `"result":` + result, ""},
		{"another value", call(`"equals":{"content.0.text":"bye"}`), `"result":` + result, `content.0.text is "hello", and is to be "bye"`},
		{"other digits", call(`"equals":{"structuredContent.big":12345678901234567891}`), `"result":` + result, "12345678901234567890, and is to be 12345678901234567891"},
		{"another type", call(`"equals":{"structuredContent.n":"1"}`), `"result":` + result, `structuredContent.n is 1.0, and is to be "1"`},
		{"missing", call(`"equals":{"structuredContent.m":1}`), `"result":` + result, "structuredContent.m is not there"},
		{"too slow", call(`"within":"1ns"`), `"result":` + result, "is to take 1ns at most"},
		{"an error", call(``), `"result":{"content":[{"type":"text","text":"no such file"}],"isError":true}`, "the tool answered with an error: no such file"},
		{"an error is expected", call(`"isError":true`), `"result":{"content":[],"isError":true}`, ""},
		{"no error", call(`"isError":true`), `"result":{"content":[]}`, "answered without an error"},
		{"the server refuses", call(``), `"error":{"code":-32602,"message":"not so"}`, "error -32602: not so"},
		{"arguments that do not fit", `{"server":"x","tool":"t","arguments":{"m":1}}`, `"result":{}`, `unknown argument: "m"`},
		{"an unknown tool", `{"server":"x","tool":"tt"}`, `"result":{}`, "did you mean t?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := answering(t, always(test.answer))
			r := newRig(t, f.dial)
			path := savedCalls(t, test.call, `{"server":"files","tool":"t","arguments":{"s":"second"}}`)
			failed := 0
			if test.fault != "" {
				failed++
			}
			if strings.Contains(test.answer, "rror\":") { // of the second call, too
				failed++
			}
			code, stdout, stderr := r.run("call", "--saved", path)
			if code != min(failed, exit.Answer) || strings.Count(stdout, "FAILED") != failed || strings.Count(stdout, "ok  ") != 2-failed || !strings.Contains(stdout, test.fault) {
				t.Errorf("exit code %d with %d failures:\n%s", code, failed, stdout)
			}
			if want := fmt.Sprintf("%d of 2 calls did not meet their expectations", failed); strings.Contains(stderr, want) != (failed > 0) {
				t.Errorf("stderr %q", stderr)
			}
			if n := strings.Count(f.all(), `"initialize"`); n != 1 {
				t.Errorf("%d connections", n)
			}
			if strings.Contains(test.call, `"n":`) && !strings.Contains(f.all(), `{"n":12345678901234567890}`) {
				t.Errorf("the server got\n%s", f.all())
			}
			code, stdout, stderr = r.run("call", "--saved", path, "--json-output")
			doc := gjson.Parse(stdout)
			if first := doc.Get("calls.0"); !gjson.Valid(stdout) || stderr != "" || code != min(failed, exit.Answer) || len(doc.Get("calls").Array()) != 2 || doc.Get("failed").Int() != int64(failed) || first.Get("ok").Bool() != (test.fault == "") || first.Get("faults").Exists() != (test.fault != "") {
				t.Errorf("exit code %d, stderr %q\n%s", code, stderr, stdout)
			}
			if strings.Contains(test.answer, "hello") && !strings.Contains(stdout, "12345678901234567890") {
				t.Errorf("the result is lost:\n%s", stdout)
			}
		})
	}
}

// Without a target, calls go to the servers of the file, each over one connection, and those
// of a server that cannot be reached fail.
func TestSavedServers(t *testing.T) {
	f := answering(t, always(`"result":{"content":[]}`))
	var asked []string
	r := newRig(t, func(c *config.Config, name string, log *slog.Logger) (*inspect.Link, error) {
		asked = append(asked, name)
		for _, s := range c.Servers {
			asked = append(asked, "with "+s.Name)
		}
		if name == "away" {
			return nil, json.Unmarshal([]byte("x"), new(int))
		}
		return f.dial(c, name, log)
	})
	yaml := file(t, "bridge.yaml", "servers:\n  one: { stdio: { command: cat } }\n  away: { stdio: { command: cat } }\n")
	path := savedCalls(t, `{"server":"one","tool":"t"}`, `{"server":"away","tool":"t"}`, `{"server":"*","tool":"t"}`, `{"server":"one","tool":"t"}`)
	code, stdout, stderr := r.line("call", "--saved", path, "-c", yaml)
	if got := strings.Join(asked, ", "); code != exit.Answer || got != "one, with one, away, with away, , with one, with away" || strings.Count(stdout, "ok ") != 3 || !strings.Contains(stdout, "FAILED  away t") || !strings.Contains(stderr, "1 of 4") {
		t.Errorf("exit code %d, asked %s\n%s%s", code, got, stdout, stderr)
	}
	r.says(exit.Usage, "", `no server "ones": did you mean one?`, "call", "--saved", savedCalls(t, `{"server":"ones","tool":"t"}`), "-c", yaml)
}

// What the console exports is read: its test writes this very file (O-024).
func TestSavedByConsole(t *testing.T) {
	f := answering(t, always(`"result":{"content":[{"type":"text","text":"hello"}],"structuredContent":{"n":1}}`))
	code, stdout, stderr := newRig(t, f.dial).run("call", "--saved", filepath.Join("..", "..", "..", "bridge", "server", "internal", "admin", "console", "testdata", "calls.json"))
	if code != 0 || !strings.Contains(stdout, "ok      files t: says hello (") || strings.Count(stdout, "ok ") != 2 || !strings.Contains(f.all(), `{"n":12345678901234567890}`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// What is wrong with a file, or a command line, is said before anything is called.
func TestSavedMistakes(t *testing.T) {
	good := `{"server":"x","tool":"t"}`
	for _, test := range []struct {
		file   string
		args   []string
		stderr string
	}{
		{"{\n\"calls\":[\n" + good + ",\n{\"server\":\"x\"}]}", nil, `calls.json:4: call 2: "tool" is missing`},
		{`{"calls":[{"server":"x","tool":"t","arguments":[]}]}`, nil, `"arguments" must be an object`},
		{`{"calls":[{"server":"x","tool":"t","expect":{"within":"soon"}}]}`, nil, `"within" is "soon": must be a time`},
		{`{"calls":[{"server":"x","tool":"t","expect":{"within":"-1s"}}]}`, nil, "must be a time"},
		{"{\"calls\":[\n" + good + ",{\"server\":\"x\",\"tool\":\"t\",\"expects\":{}}]}", nil, `calls.json:2: call 2: unknown field "expects"`},
		{`{"calls":[]}`, nil, `there are no "calls"`},
		{"{\n\"calls\": 1}", nil, "calls.json:2: it must be an object"},
		{"[]", nil, "as the console exports it"},
		{`{"calls":[` + good + `]} {}`, nil, "as the console exports it"},
		{`{"calls":[` + good + `]}`, []string{"t"}, `"t" is of no use with --saved`},
		{`{"calls":[` + good + `]}`, []string{"--json", "{}"}, "--json is of no use with --saved"},
		{`{"calls":[` + good + `]}`, []string{"--dry-run"}, "--dry-run is of no use with --saved"},
		{`{"calls":[` + good + `]}`, []string{"--output-dir", "."}, "--output-dir is of no use with --saved"},
		{`{"calls":[` + good + `]}`, []string{"--timeout", "0s"}, "longer than 0"},
	} {
		f := answering(t, always(`"result":{"content":[]}`))
		newRig(t, f.dial).says(exit.Usage, "", test.stderr, append(append([]string{"call", "--saved", file(t, "calls.json", test.file)}, test.args...), "--", "cat")...)
		if f.all() != "" {
			t.Errorf("%s: the server got %s", test.file, f.all())
		}
	}
	// A target stands for the servers of all calls.
	f := answering(t, always(`"result":{"content":[]}`))
	if code, stdout, stderr := newRig(t, f.dial).run("call", "--saved", savedCalls(t, `{"tool":"t"}`)); code != 0 || strings.Count(stdout, "ok ") != 1 {
		t.Errorf("a call without a server: exit code %d\n%s%s", code, stdout, stderr)
	}
	r := newRig(t, nil)
	r.says(exit.Usage, "", `call 1: "server" is missing`, "call", "--saved", savedCalls(t, `{"tool":"t"}`))
	r.says(exit.Usage, "", "--saved: open none.json", "call", "--saved", "none.json")
	r.says(exit.Usage, "", "--header needs a URL", "call", "--saved", savedCalls(t, good), "-H", "A: b")
}
