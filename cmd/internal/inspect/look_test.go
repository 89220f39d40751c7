package inspect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// results makes a fake's answers of results, by method.
func results(all map[string]string) map[string]func(*fake, json.RawMessage) string {
	answers := map[string]func(*fake, json.RawMessage) string{}
	for method, result := range all {
		answers[method] = always(`"result":` + result)
	}
	return answers
}

const twoTools = `{"tools":[` +
	`{"name":"remove","title":"Remove","description":"Removes a file\nfor good, and everything that belongs to it.","annotations":{"destructiveHint":true},` +
	`"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"The file"},"count":{"type":"integer","default":12345678901234567890}},"required":["path"]},"x-own":1.50},` +
	`{"name":"list","annotations":{"title":"List files","readOnlyHint":true,"destructiveHint":true},"inputSchema":{"type":"object"}}]}`

func TestTools(t *testing.T) {
	f := &fake{t: t, answers: results(map[string]string{"tools/list": twoTools})}
	r := newRig(t, f.dial)
	r.want(0, `NAME    HINTS        DESCRIPTION
remove  destructive  Removes a file for good, and everything that belongs to it.
list    read-only    List files
`, "", "tools")
	r.want(0, `remove  Remove  (destructive)
  Removes a file
  for good, and everything that belongs to it.

  ARGUMENT  TYPE     REQUIRED  DEFAULT               DESCRIPTION
  path      string   yes                             The file
  count     integer            12345678901234567890

list  List files  (read-only)
`, "", "tools", "--long")
	r.want(0, twoTools+"\n", "", "tools", "--json-output")
	r.terminal = true
	r.want(0, `NAME    HINTS        DESCRIPTION
remove  destructive  Removes a file for good, and everythin…
list    read-only    List files
`, "", "tools")
}

// All pages are fetched, and make one document.
func TestPages(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	for i := range 5 {
		name := fmt.Sprintf("tool-%d", i)
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
		s.AddPrompt(&mcp.Prompt{Name: name}, nil)
		s.AddResource(&mcp.Resource{Name: name, URI: "x://" + name}, nil)
	}
	r := newRig(t, inMemory(t, s))
	for _, command := range []string{"tools", "prompts", "resources"} {
		code, stdout, stderr := r.run(command, "--json-output")
		names := gjson.Get(stdout, command+".#.name").String()
		if want := `["tool-0","tool-1","tool-2","tool-3","tool-4"]`; code != 0 || !json.Valid([]byte(stdout)) || names != want {
			t.Errorf("%s: exit code %d, stderr %q, names %s, want %s", command, code, stderr, names, want)
		}
	}
}

// A listing that leads back to itself shows each thing once, and a warning.
func TestEndlessPages(t *testing.T) {
	f := &fake{t: t, answers: results(map[string]string{
		"tools/list":               `{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"again"}`,
		"prompts/list":             `{"prompts":[{"name":"p"}],"nextCursor":"again"}`,
		"resources/list":           `{"resources":[{"name":"r","uri":"x://r"}],"nextCursor":"again"}`,
		"resources/templates/list": `{"resourceTemplates":[],"nextCursor":"again"}`,
	})}
	r := newRig(t, f.dial)
	for command, want := range map[string]string{
		"tools":     `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`,
		"prompts":   `{"prompts":[{"name":"p"}]}`,
		"resources": `{"resources":[{"name":"r","uri":"x://r"}],"resourceTemplates":[]}`,
	} {
		code, stdout, stderr := r.run(command, "--json-output")
		if code != 0 || strings.TrimSpace(stdout) != want || !strings.Contains(stderr, "warning: "+command+"/list was cut off: the server sends the same page again") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %s and the reason", command, code, stdout, stderr, want)
		}
	}
}

// A server without something is not an error; one that promises it is.
func TestNothingToList(t *testing.T) {
	liar := &fake{t: t, answers: results(map[string]string{
		"initialize":     `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"}}`,
		"resources/list": `{"resources":[]}`,
	})}
	l := newRig(t, liar.dial)
	l.want(exit.Answer, "", "mcp-bridge: the server answered with error -32601: no such method\n", "tools")
	l.want(exit.Answer, "", "mcp-bridge: the server answered with error -32601: no such method\n", "prompts")
	l.want(0, "", "the server has no resources\n", "resources") // templates are not promised
	r := newRig(t, (&fake{t: t}).dial)
	for _, what := range []string{"tools", "prompts", "resources"} {
		r.want(0, "", "the server has no "+what+"\n", what)
	}
	r.want(0, `{"tools":[]}`+"\n", "", "tools", "--json-output")
	r.want(0, `{"resources":[],"resourceTemplates":[]}`+"\n", "", "resources", "--json-output")
}

func TestPrompts(t *testing.T) {
	f := &fake{t: t, answers: results(map[string]string{
		"prompts/list": `{"prompts":[{"name":"weather","description":"Asks","arguments":[{"name":"city","description":"Where","required":true},{"name":"state"}]},{"name":"plain","title":"Plain one"}]}`,
		"prompts/get":  `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}},{"role":"assistant","content":{"type":"resource","resource":{"uri":"x://1","text":"body"}}}],"own":1.0}`,
	})}
	r := newRig(t, f.dial)
	r.want(0, "NAME     ARGUMENTS     DESCRIPTION\nweather  city [state]  Asks\nplain                  Plain one\n", "", "prompts")
	r.want(0, `weather
  Asks

  ARGUMENT  REQUIRED  DESCRIPTION
  city      yes       Where
  state

plain  Plain one
`, "", "prompts", "--long")
	r.want(0, "user:\nhello\n\nassistant:\n[resource] x://1\nbody\n", "", "prompts", "weather", "city=Bern", "state:=5")
	if line := f.await(`"prompts/get"`); gjson.Get(line, "params.arguments").Raw != `{"city":"Bern","state":"5"}` {
		t.Errorf("sent %s", line)
	}
	r.want(0, `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}},{"role":"assistant","content":{"type":"resource","resource":{"uri":"x://1","text":"body"}}}],"own":1.0}`+"\n", "",
		"prompts", "weather", "city=Bern", "--json-output")
	r.want(exit.Usage, "", `mcp-bridge: prompt "weather": missing argument: city; unknown argument: "town" (there is city, state)
  ARGUMENT  REQUIRED  DESCRIPTION
  city      yes       Where
  state
`, "prompts", "weather", "town=Bern")
	r.want(exit.Usage, "", "mcp-bridge: the server has no prompt \"wether\": did you mean weather?\n", "prompts", "wether")
}

func TestResources(t *testing.T) {
	contents := map[string]string{
		"x://text":   `{"uri":"x://text","text":"no line break, \u001b[31m"}`,
		"x://binary": `{"uri":"x://binary","mimeType":"image/png","blob":"AAH/"}`,
		"x://broken": `{"uri":"x://broken","blob":"?"}`,
	}
	f := &fake{t: t, answers: results(map[string]string{
		"resources/list":           `{"resources":[{"uri":"x://text","name":"text","mimeType":"text/plain","size":12345678901234567890,"description":"A text"},{"uri":"x://binary","name":"b","title":"Binary"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"x://{id}","name":"any"}]}`,
	})}
	f.answers["resources/read"] = func(_ *fake, params json.RawMessage) string {
		if c, ok := contents[gjson.GetBytes(params, "uri").String()]; ok {
			return `"result":{"contents":[` + c + `]}`
		}
		return `"error":{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}`
	}
	r := newRig(t, f.dial)
	r.want(0, `URI         NAME    TYPE        SIZE
x://text    text    text/plain  12345678901234567890
x://binary  Binary

TEMPLATE  NAME
x://{id}  any
`, "", "resources")
	r.want(0, `URI         NAME    TYPE        SIZE                  DESCRIPTION
x://text    text    text/plain  12345678901234567890  A text
x://binary  Binary

TEMPLATE  NAME
x://{id}  any
`, "", "resources", "--long")
	r.want(0, "no line break, \x1b[31m", "", "resources", "x://text") // byte for byte
	r.want(0, "\x00\x01\xff", "", "resources", "x://binary")
	r.want(0, `{"contents":[`+contents["x://binary"]+"]}\n", "", "resources", "x://binary", "--json-output")
	r.want(exit.Answer, "", "mcp-bridge: the server answered with error -32002: Resource not found\n{\"uri\":\"x\"}\n", "resources", "x://none")
	r.want(exit.Answer, `{"error":{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}}`+"\n", "", "resources", "x://none", "--json-output")
	r.says(exit.Server, "*", "base64", "resources", "x://broken", "--", "cat")
	r.terminal = true
	r.want(0, "no line break, ␛[31m\n", "", "resources", "x://text")
	r.want(0, "image/png, 3 bytes: send the output to a file to get it\n", "", "resources", "x://binary")
}

// What a server says cannot command the terminal, wherever it is shown.
func TestHostileText(t *testing.T) {
	const evil = `\u001b[2J\u009b31m\r\u202e`
	f := &fake{t: t, answers: results(map[string]string{
		"tools/list": `{"tools":[{"name":"` + evil + `","title":"` + evil + `","description":"` + evil + `","inputSchema":{"type":"object","properties":{"` + evil + `":{"type":"` + evil + `","description":"` + evil + `","enum":["` + evil + `"]}},"required":["` + evil + `"]}}]}`,
		"tools/call": `{"content":[{"type":"text","text":"` + evil + `"},{"type":"` + evil + `"},{"type":"image","mimeType":"` + evil + `","data":"?"},{"type":"resource_link","uri":"` + evil + `"}],"structuredContent":{"a":"` + evil + `"},"isError":true}`,
	})}
	f.answers["prompts/list"] = always(`"error":{"code":1,"message":"` + evil + `","data":{"a":"\u009b"}}`)
	r := newRig(t, f.dial)
	r.terminal = true
	for _, args := range [][]string{
		{"tools"}, {"tools", "--long"}, {"tools", "--json-output"}, {"prompts"}, {"prompts", "--json-output"},
		{"call", "other"}, {"call", "\x1b[2J\u009b31m\r\u202e"}, {"call", "any", "--no-check"}, {"call", "any", "--no-check", "--json-output"},
	} {
		_, stdout, stderr := r.run(args...)
		if strings.ContainsAny(stdout+stderr, "\x1b\u009b\r\u202e") {
			t.Errorf("%q: stdout %q, stderr %q: a control character has come through", args, stdout, stderr)
		}
		if !strings.Contains(stdout+stderr, `\u009b`) {
			t.Errorf("%q: stdout %q, stderr %q: it is not shown", args, stdout, stderr)
		}
	}
}

func TestRoots(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "roots", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		all, err := q.Session.ListRoots(ctx, nil) //lint:ignore SA1019 deprecated in 2026-07-28, and what servers of today use
		if err != nil {
			return nil, err
		}
		text := ""
		for _, root := range all.Roots {
			text += root.URI
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
	r := newRig(t, inMemory(t, s))
	dir := t.TempDir()
	r.want(0, "file://"+dir+"\n", "", "call", "roots", "--root", dir)
	f := &fake{t: t}
	r.dial = f.dial
	r.want(0, "", "the server has no tools\n", "tools")
	if can := gjson.Get(f.await(`"initialize"`), "params.capabilities").Raw; can != `{"elicitation":{"form":{},"url":{}}}` {
		t.Errorf("without roots the capabilities are %s", can)
	}
	r.says(exit.Usage, "*", "--root", "tools", "--root", dir+"/none", "--", "cat")
}
