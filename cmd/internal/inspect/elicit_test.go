package inspect_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

const askedForm = `{"message":"Who are you?\u001b","requestedSchema":{"type":"object","properties":{
  "name":{"type":"string","title":"Name","description":"In full","minLength":2},
  "email":{"type":"string","format":"email"},
  "pets":{"type":"integer","minimum":0,"maximum":100},
  "size":{"type":"string","enum":["s","m"],"enumNames":["Small","Medium"]},
  "level":{"type":"string","oneOf":[{"const":"1","title":"low"},{"const":"2","title":"high"}]},
  "tags":{"type":"array","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"x","title":"Ex"},{"const":"y","title":"Why"},{"const":"z"}]}},
  "news":{"type":"boolean","default":false},
  "note":{"type":"string"}
},"required":["name"]}}`

// asking makes a server whose tool asks the user that question. The text of
// its answer is the user's reply.
func asking(t *testing.T, question string) *fake {
	f := answering(t, func(f *fake, _ json.RawMessage) string {
		f.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` + strings.ReplaceAll(question, "\n", "") + `}`)
		reply := gjson.Get(f.await(`"q"`), "result").Raw
		text, err := json.Marshal(reply)
		if err != nil {
			f.t.Error(err)
		}
		return `"result":{"content":[{"type":"text","text":` + string(text) + `}]}`
	})
	return f
}

func TestElicitation(t *testing.T) {
	const url = `{"mode":"url","message":"Log in\u001b","url":"https://example.com/a?b=c"}`
	for _, test := range []struct {
		name, question string
		stdin          []string
		reply          string
		stderr         []string // parts of it
	}{
		{"a form", askedForm,
			[]string{"Ann", "a@b.example", "2", "m", "2", "x, 2", "y", "", "y"},
			`{"action":"accept","content":{"name":"Ann","email":"a@b.example","pets":2,"size":"m","level":"2","tags":["x","y"],"news":true}}`,
			[]string{"The server asks: Who are you?␛\n", "Name: In full (string, required)\n", "  2. m (Medium)\n", "  1. 1 (low)\n", "  2. y (Why)\n", "[false] > "}},
		{"defaults and what is left out", askedForm,
			[]string{"Ann", "", "", "", "", "", "", "", "yes"},
			`{"action":"accept","content":{"name":"Ann","news":false}}`, nil},
		{"what does not fit is asked again", askedForm,
			[]string{"", "A", "Ann", "nobody", "", "two", "101", "-1", "12", "l", "", "3", "", "q", "x,y,z", "x", "perhaps", "n", "", "what", "y"},
			`{"action":"accept","content":{"name":"Ann","pets":12,"tags":["x"],"news":false}}`,
			[]string{"this is required", "characters at least: 2", "this is no email", `"two" is not of the type integer`, "at most 100", "at least 0", "choose one of the values", "choose 2 at most", `"perhaps" is not of the type boolean`}},
		{"edited", askedForm,
			[]string{"Ann", "", "", "", "", "", "", "", "e", "Bob", "", "", "", "", "", "", "", "y"},
			`{"action":"accept","content":{"name":"Bob","news":false}}`, nil},
		{"not sent", askedForm, []string{"Ann", "", "", "", "", "", "", "", "no"}, `{"action":"decline"}`, nil},
		{"declined", askedForm, []string{"Ann", "!decline"}, `{"action":"decline"}`, nil},
		{"cancelled", askedForm, []string{"!cancel"}, `{"action":"cancel"}`, nil},
		{"the end of stdin", askedForm, []string{"Ann"}, `{"action":"cancel"}`, nil},
		{"a form without fields", `{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}`, []string{"y"}, `{"action":"accept","content":{}}`, []string{"Sure?"}},
		{"digits stay", `{"message":"?","requestedSchema":{"properties":{"n":{"type":"number"}}}}`, []string{"1.50", "y"}, `{"action":"accept","content":{"n":1.50}}`, nil},
		{"an address", url, []string{"y"}, `{"action":"accept"}`, []string{"Log in␛\n", "visit example.com:\n  https://example.com/a?b=c\n"}},
		{"a bad address", `{"mode":"url","message":"?","url":"\u001b"}`, []string{"n"}, `{"action":"decline"}`, []string{"visit an address without a host:\n  ␛\n"}},
		{"an address declined", url, []string{"", "n"}, `{"action":"decline"}`, nil},
		{"an address cancelled", url, nil, `{"action":"cancel"}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, asking(t, test.question).dial)
			r.terminal = true
			r.stdin = strings.NewReader(strings.Join(append(test.stdin, ""), "\n"))
			code, stdout, stderr := r.run("call", "t")
			if code != 0 || strings.TrimSpace(stdout) != test.reply {
				t.Errorf("exit code %d, the reply was %s, want %s; stderr:\n%s", code, stdout, test.reply, stderr)
			}
			for _, part := range test.stderr {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr\n%s\nwant %q in it", stderr, part)
				}
			}
		})
	}
}

// Without a terminal nobody is asked.
func TestNobodyToAsk(t *testing.T) {
	r := newRig(t, asking(t, askedForm).dial)
	r.stdin = strings.NewReader("Ann\n")
	r.want(0, "{\"action\":\"cancel\"}\n", "the server asks: Who are you?␛\nthere is no terminal to answer on: the answer is cancel\n", "call", "t")
}

// The server takes its question back, and answers the call without a reply.
func TestWithdrawnQuestion(t *testing.T) {
	f := answering(t, func(f *fake, _ json.RawMessage) string {
		f.send(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":` + strings.ReplaceAll(askedForm, "\n", "") + `}`)
		f.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		return `"result":{"content":[{"type":"text","text":"done"}]}`
	})
	r := newRig(t, f.dial)
	r.terminal = true
	stdin, w := io.Pipe() // nobody types
	r.stdin = stdin
	code, stdout, stderr := r.run("call", "t")
	w.Close() // ends the reading
	if code != 0 || stdout != "done\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q, want 0 and done", code, stdout, stderr)
	}
	if strings.Contains(f.all(), `"id":7`) {
		t.Errorf("a question that was taken back was answered: %s", f.all())
	}
}

// An interrupt ends the question and the call.
func TestInterruptedQuestion(t *testing.T) {
	f := asking(t, askedForm)
	r := newRig(t, f.dial)
	r.terminal = true
	ctx, interrupt := context.WithCancel(t.Context())
	r.ctx = ctx
	stdin, w := io.Pipe()
	r.stdin = reading{stdin, interrupt}
	code, stdout, stderr := r.run("call", "t")
	w.Close()
	if !strings.Contains(f.all(), `"notifications/cancelled"`) {
		t.Error("the server does not know that the call is not wanted any more")
	}
	if code != exit.Interrupted || stdout != "" || !strings.HasSuffix(stderr, "\nmcp-bridge: interrupted\n") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want %d, nothing and interrupted", code, stdout, stderr, exit.Interrupted)
	}
}

// reading calls begun when somebody reads.
type reading struct {
	io.Reader
	begun func()
}

func (r reading) Read(b []byte) (int, error) {
	r.begun()
	return r.Reader.Read(b)
}

// Questions that come together are put one after the other.
func TestTwoQuestions(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "two", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answers := make(chan string, 2)
		for range 2 {
			go func() {
				text := "failed"
				if a, err := q.Session.Elicit(ctx, &mcp.ElicitParams{Message: "?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}); err == nil {
					raw, _ := json.Marshal(a.Content["n"])
					text = string(raw)
				}
				answers <- text
			}()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: <-answers}, &mcp.TextContent{Text: <-answers}}}, nil
	})
	r := newRig(t, inMemory(t, s))
	r.terminal = true
	r.stdin = strings.NewReader("1\ny\n2\ny\n")
	if code, stdout, stderr := r.run("call", "two"); code != 0 || stdout != "1\n2\n" && stdout != "2\n1\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q, want 0 and both answers", code, stdout, stderr)
	}
}
