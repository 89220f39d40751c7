package inspect_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

const oneTool = `{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}}}}]}`

// answering makes a server with the tool t, whose calls are answered so.
func answering(t *testing.T, answer func(*fake, json.RawMessage) string) *fake {
	f := &fake{t: t, answers: results(map[string]string{"tools/list": oneTool})}
	f.answers["tools/call"] = answer
	return f
}

// What a tool answers is printed as people and pipes want it.
func TestCallOutput(t *testing.T) {
	for _, test := range []struct{ name, result, stdout string }{
		{"text", `{"content":[{"type":"text","text":"a\nb"},{"type":"text","text":"c\n"},{"type":"text","text":"\u001b"}]}`, "a\nb\nc\n\x1b\n"},
		{"nothing", `{"content":[]}`, ""},
		{"structured beside text", `{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":1}}`, "a\n"},
		{"structured alone", `{"content":[],"structuredContent":{"z":12345678901234567890,"a":[1.0]}}`, "{\n  \"z\": 12345678901234567890,\n  \"a\": [\n    1.0\n  ]\n}\n"},
		{"image", `{"content":[{"type":"image","mimeType":"image/png","data":"AAH/"}]}`, "[image] image/png, 3 bytes; --output-dir DIR writes it to a file\n"},
		{"audio without a type", `{"content":[{"type":"audio","data":"AAH/"}]}`, "[audio] of an unnamed type, 3 bytes; --output-dir DIR writes it to a file\n"},
		{"not base64", `{"content":[{"type":"image","mimeType":"image/png","data":"?"}]}`, "[image] image/png, not valid base64\n"},
		{"link", `{"content":[{"type":"resource_link","uri":"x://1","name":"one","mimeType":"text/plain","size":5,"description":"The first"}]}`, "[link] x://1 (one, text/plain, 5 bytes): The first\n"},
		{"text resource", `{"content":[{"type":"resource","resource":{"uri":"x://1","text":"body"}}]}`, "[resource] x://1\nbody\n"},
		{"binary resource", `{"content":[{"type":"resource","resource":{"uri":"x://1","mimeType":"a/b","blob":"AAH/"}}]}`, "[resource x://1] a/b, 3 bytes; --output-dir DIR writes it to a file\n"},
		{"of a later revision", `{"content":[{"type":"hologram","depth":1.50}]}`, "{\n  \"type\": \"hologram\",\n  \"depth\": 1.50\n}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, answering(t, always(`"result":`+test.result)).dial)
			r.want(0, test.stdout, "", "call", "t")
			r.want(0, test.result+"\n", "", "call", "t", "--json-output")
		})
	}
}

// Arguments reach the server with their types and digits.
func TestCallArguments(t *testing.T) {
	path := file(t, "args.json", `{"s": "from a file"}`)
	for _, test := range []struct {
		name  string
		args  []string
		stdin string
		want  string
	}{
		{"none", nil, "", `{}`},
		{"pairs", []string{"n=12345678901234567890", "s=5"}, "", `{"n":12345678901234567890,"s":"5"}`},
		{"an object", []string{"--json", `{"n":1.0}`}, "", `{"n":1.0}`},
		{"an object of a file", []string{"--json", "@" + path}, "", `{"s":"from a file"}`},
		{"an object of stdin", []string{"--json", "-"}, `{"n":3}`, `{"n":3}`},
		{"unchecked", []string{"--no-check", "other=1"}, "", `{"other":1}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := answering(t, always(`"result":{"content":[]}`))
			r := newRig(t, f.dial)
			r.stdin = strings.NewReader(test.stdin)
			r.want(0, "", "", append([]string{"call", "t"}, test.args...)...)
			if got := gjson.Get(f.await(`"tools/call"`), "params.arguments").Raw; got != test.want {
				t.Errorf("arguments %s, want %s", got, test.want)
			}
		})
	}
}

func TestCallMistakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		stderr string
	}{
		{"no tool", nil, "name the tool"},
		{"unknown tool", []string{"tt"}, `no tool "tt": did you mean t?`},
		{"unknown argument", []string{"t", "nn=1"}, `tool "t": unknown argument: "nn" (did you mean n?)`},
		{"unknown argument in an object", []string{"t", "--json", `{"nn":1}`}, `did you mean n?`},
		{"wrong type", []string{"t", "n=x"}, "not of the type integer"},
		{"no argument", []string{"t", "n"}, "is not key=value"},
		{"both", []string{"t", "n=1", "--json", "{}"}, "not both"},
		{"no object", []string{"t", "--json", "[]"}, "--json must be an object"},
		{"null", []string{"t", "--json", "null"}, "--json must be an object"},
		{"no such file", []string{"t", "--json", "@none.json"}, "--json: open none.json"},
		{"two ways out", []string{"t", "--json-output", "--output-dir", "."}, ""}, // said in JSON
		{"bad time", []string{"t", "--timeout", "0s"}, "longer than 0"},
		{"header without a URL", []string{"t", "-H", "A: b"}, "--header needs a URL or an OpenAPI document"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := answering(t, always(`"result":{"content":[]}`))
			code, stdout, stderr := newRig(t, f.dial).run(append([]string{"call"}, test.args...)...)
			if code != exit.Usage || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, stderr %q, want %d and %q", code, stderr, exit.Usage, test.stderr)
			}
			if test.stderr == "" && gjson.Get(stdout, "error.code").Int() != -32602 || test.stderr != "" && stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
			if strings.Contains(f.all(), "tools/call") {
				t.Error("the tool was called")
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		name           string
		answer         string
		code           int
		stderr, stdout string // of the second run, with --json-output
	}{
		{"success", `"result":{"content":[]}`, 0, "", `{"content":[]}`},
		{"isError", `"result":{"content":[],"isError":true}`, exit.Answer, `the tool "t" answered with an error`, `{"content":[],"isError":true}`},
		{"error", `"error":{"code":-32000,"message":"no luck","data":{"n":1.50}}`, exit.Answer, "the server answered with error -32000: no luck\n{\"n\":1.50}\n", `{"error":{"code":-32000,"message":"no luck","data":{"n":1.50}}}`},
		{"lost", `"error":{"code":-32603,"message":"server x: it died","data":{"bridge":"upstream_lost"}}`, exit.Server, "mcp-bridge: server x: it died: out of memory (--verbose shows more)\n", `{"error":{"code":-32603,"message":"server x: it died: out of memory","data":{"bridge":"upstream_lost"}}}`},
		{"time-out", `"error":{"code":-32603,"message":"server x: late","data":{"bridge":"upstream_timeout"}}`, exit.Timeout, "mcp-bridge: server x: late: out of memory\n", `{"error":{"code":-32603,"message":"server x: late: out of memory","data":{"bridge":"upstream_timeout"}}}`},
		{"a visit is needed", `"error":{"code":-32042,"message":"log in","data":{"elicitations":[{"mode":"url","url":"https://example.com/login","message":"here"}]}}`, exit.Answer, "visit these addresses, then call again\n  here https://example.com/login\n", `{"error":{"code":-32042,"message":"log in","data":{"elicitations":[{"mode":"url","url":"https://example.com/login","message":"here"}]}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := answering(t, always(test.answer))
			f.why = "out of memory"
			r := newRig(t, f.dial)
			code, stdout, stderr := r.run("call", "t")
			if code != test.code || stdout != "" || !strings.HasSuffix(stderr, test.stderr) && !strings.Contains(stderr, test.stderr+"\n") {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %d, nothing and %q", code, stdout, stderr, test.code, test.stderr)
			}
			r.want(test.code, test.stdout+"\n", "", "call", "t", "--json-output")
		})
	}
}

// The connection breaks while a call is under way.
func TestCallLost(t *testing.T) {
	f := answering(t, func(f *fake, _ json.RawMessage) string {
		f.conn.Close()
		return ""
	})
	r := newRig(t, f.dial)
	r.says(exit.Server, "*", "mcp-bridge: ", "call", "t", "--", "cat")
	if code, stdout, _ := r.run("call", "t", "--json-output"); code != exit.Server || !gjson.Get(stdout, "error.message").Exists() {
		t.Errorf("exit code %d, stdout %q, want %d and an error", code, stdout, exit.Server)
	}
}

// A server that never answers the handshake.
func TestSilentServer(t *testing.T) {
	f := &fake{t: t, answers: map[string]func(*fake, json.RawMessage) string{"initialize": always("")}}
	r := newRig(t, f.dial)
	r.want(exit.Timeout, "", "mcp-bridge: the server was not ready in time (--timeout)\n", "tools", "--timeout", "1ms")
}

// An interrupt takes the call back, and the server learns of it.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f := answering(t, func(*fake, json.RawMessage) string {
		interrupt()
		return ""
	})
	r := newRig(t, f.dial)
	r.ctx = ctx
	r.want(exit.Interrupted, "", "mcp-bridge: interrupted\n", "call", "t")
	called := gjson.Get(f.await(`"tools/call"`), "id").Raw
	if took := gjson.Get(f.await(`"notifications/cancelled"`), "params.requestId").Raw; took != called || called == "" {
		t.Errorf("request %q was taken back, want %q", took, called)
	}
}

// An interrupt between two requests: the answer to the first is not taken for
// that to the second.
func TestInterruptBetween(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f := answering(t, always(`"result":{"content":[]}`))
	f.answers["tools/list"] = func(*fake, json.RawMessage) string {
		interrupt()
		return `"result":` + oneTool
	}
	r := newRig(t, f.dial)
	r.ctx = ctx
	r.want(exit.Interrupted, `{"error":{"code":-32603,"message":"interrupted"}}`+"\n", "", "call", "t", "--json-output")
}

func TestInterruptHandshake(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f := &fake{t: t, answers: map[string]func(*fake, json.RawMessage) string{"initialize": func(*fake, json.RawMessage) string {
		interrupt()
		return ""
	}}}
	r := newRig(t, f.dial)
	r.ctx = ctx
	r.want(exit.Interrupted, "", "mcp-bridge: interrupted\n", "tools")
}

// busy reports progress and writes to its log before it answers.
func busy(f *fake, params json.RawMessage) string {
	if token := gjson.GetBytes(params, "_meta.progressToken"); token.Exists() {
		f.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token.Raw + `,"progress":1,"total":4,"message":"one\u001b"}}`)
		f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"l","data":"text\u001b"}}`)
		f.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token.Raw + `,"progress":12345678901234567890}}`)
	}
	f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":{"n":1.50}}}`)
	return `"result":{"content":[{"type":"text","text":"done"}]}`
}

func TestProgress(t *testing.T) {
	f := answering(t, busy)
	r := newRig(t, f.dial)
	r.want(0, "done\n", "1/4 (25%) one␛\n12345678901234567890\n", "call", "t")
	r.want(0, "done\n", "1/4 (25%) one␛\n[info] l: text␛\n12345678901234567890\n[warning] {\"n\":1.50}\n", "call", "t", "--verbose")
	f.await(`"logging/setLevel"`) // and so it was asked for
	r.want(0, "done\n", "", "call", "t", "--quiet")
	r.terminal = true
	r.want(0, "done\n", "\r1/4 (25%) one␛\x1b[K\r12345678901234567890\x1b[K\r\x1b[K", "call", "t")
	r.want(0, "done\n", "\r1/4 (25%) one␛\x1b[K\r\x1b[K[info] l: text␛\n\r12345678901234567890\x1b[K\r\x1b[K[warning] {\"n\":1.50}\n", "call", "t", "-v")
}

// Binary content goes to new files with names of our making.
func TestOutputDir(t *testing.T) {
	const image = `{"type":"image","mimeType":"image/png","data":"AAH/"}`
	f := &fake{t: t, answers: results(map[string]string{
		"tools/list": `{"tools":[{"name":"../../evil\u0000","inputSchema":{}}]}`,
		"tools/call": `{"content":[` + image + `,{"type":"resource","resource":{"uri":"file:///etc/passwd","mimeType":"../x","blob":"Ag=="}},` + image + `]}`,
	})}
	dir := filepath.Join(t.TempDir(), "new", "folder")
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("evil-1.png"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, f.dial)
	r.want(0, "[image] image/png, 3 bytes: "+at("evil-2.png")+"\n[resource file:///etc/passwd] ../x, 1 bytes: "+at("evil-3.bin")+"\n[image] image/png, 3 bytes: "+at("evil-4.png")+"\n", "",
		"call", "../../evil\x00", "--output-dir", dir)
	for name, want := range map[string]string{"evil-1.png": "kept", "evil-2.png": "\x00\x01\xff", "evil-3.bin": "\x02", "evil-4.png": "\x00\x01\xff"} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s has %q (error %v), want %q", name, got, err, want)
		}
	}
	fresh := filepath.Join(dir, "fresh")
	r.says(0, "*", "*", "call", "../../evil\x00", "--output-dir", fresh, "--", "cat") // a folder that did not exist
	r.says(exit.Usage, "*", "--output-dir", "call", "../../evil\x00", "--output-dir", at("evil-1.png"), "--", "cat")
}
