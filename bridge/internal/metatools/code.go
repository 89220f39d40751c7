package metatools

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/script"
)

// Scripts runs the scripts of script.Tool. See script.Scripts.
type Scripts interface {
	Run(ctx context.Context, principal, code string, to script.Caller) (script.Result, error)
}

// Quota bounds the calls of a principal. See limits.Quota.
type Quota interface {
	// Enter admits a call. After a nil error, Leave must be called.
	Enter(from *bridge.Caller, m *jsonrpc.Message) error
	Leave(from *bridge.Caller)
}

// codeTools are the entries of the meta tools at an address with scripts.
func (m *Menu) codeTools() []byte {
	return append(m.searchTool("Answers with signatures for "+script.Tool+"."), entry(metaTool{
		name:  script.Tool,
		title: "Run JavaScript",
		about: "Runs JavaScript that calls tools. Find their signatures with " + SearchTools + " first. " +
			"The code is the body of an async function: const r = await tools.NAME({…}); return r. " +
			"Use one script for several calls: loops, Promise.all, and return only what you need. " +
			"A failed call throws. console.log is shown. There are no types, imports, timers, files and network.",
		schema:      `{"type":"object","properties":{"code":{"type":"string","description":"The body of an async function"}},"required":["code"]}`,
		annotations: `{"readOnlyHint":false,"destructiveHint":true}`,
	})...)
}

// run answers a call of the tool that runs a script.
func (o *offered) run(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	refuse := func(why string) (*jsonrpc.Message, error) {
		return era.Refused(r.From.Modern(), r.Message, why), nil
	}
	given, one := sole(r.Params, "arguments")
	args, ok := object(given)
	if !one || !ok || r.Doubtful() {
		return refuse(`arguments must be an object, such as {"code": "return await tools.NAME({})"}`)
	}
	code, ok := rawjson.Text(rawjson.Get(args, "code"))
	if !ok || strings.TrimSpace(code) == "" {
		return refuse("code is missing: give the body of an async function")
	}
	result, err := o.m.Scripts.Run(ctx, r.From.Principal, code, &scripted{o, r})
	if err != nil {
		return nil, err
	}
	log := ""
	if result.Log != "" {
		log = "Log:\n" + result.Log
	}
	if result.Error != "" {
		return refuse(strings.TrimSpace(result.Error + "\n" + log))
	}
	content := []string{`{"type":"text","text":` + rawjson.Quote(string(result.Value)) + `}`}
	if log != "" {
		content = append(content, `{"type":"text","text":`+rawjson.Quote(log)+`}`)
	}
	return o.result(r, []byte(`"content":[`+strings.Join(content, ",")+`]`), ""), nil
}

// scripted makes the calls of one script, on behalf of the client that runs it.
type scripted struct {
	o *offered
	r *bridge.Request // of the script
}

var _ script.Caller = (*scripted)(nil)

// Call implements script.Caller. The call passes through everything that a call of the client passes through.
func (s *scripted) Call(ctx context.Context, tool string, args []byte) ([]byte, error) {
	if tool == SearchTools || tool == script.Tool || tool == ReadResult || Calls(tool) {
		return nil, fmt.Errorf("scripts cannot call %s", tool)
	}
	from, params := s.r.From, []byte(`{"name":`+rawjson.Quote(tool)+`,"arguments":`+string(args)+`}`)
	m := jsonrpc.NewRequest("tools/call", params)
	if from.Modern() {
		// A stateless client answers questions by making its call again, and a script cannot begin again in its middle.
		asked := *from
		asked.Capabilities = []byte("{}")
		from = &asked
		m = from.Request("tools/call", params)
	}
	m.ID = []byte("0")
	if err := s.o.m.Quota.Enter(from, m); err != nil {
		return nil, told(err)
	}
	defer s.o.m.Quota.Leave(from)
	a, err := s.o.Upstream.Call(ctx, &bridge.Request{
		Message:  m.Clone(), // parsed, so that it has a name
		From:     from,
		Back:     s.r.Back,
		Header:   s.r.Header,
		Identity: s.r.Identity,
		Through:  script.Tool,
		Call:     s.r.Call,
	})
	if err != nil {
		return nil, told(err)
	}
	defer a.Release()
	return outcome(a)
}

// told returns an error with the text for clients.
func told(err error) error {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return errors.New(e.Told())
	}
	return errors.New(bridge.Brief(err))
}

// outcome returns the value of a tool's result for a script: its structured content, or else its text, which is a value
// if it is JSON.
func outcome(a *jsonrpc.Message) ([]byte, error) {
	if a.Error != nil {
		return nil, errors.New(gjson.GetBytes(a.Error, "message").String())
	}
	result := a.Whole()
	if kind := rawjson.Get(result, "resultType"); kind != nil && string(kind) != `"`+era.ResultComplete+`"` {
		return nil, errors.New("the tool asks its user, or takes longer than a call: call it with " + CallTool + ", not in a script")
	}
	content := gjson.GetBytes(result, "content")
	var texts []string
	content.ForEach(func(_, item gjson.Result) bool {
		if item.Get("type").Str == "text" {
			texts = append(texts, item.Get("text").String())
		}
		return true
	})
	text := strings.Join(texts, "\n")
	if a.IsError() {
		return nil, errors.New(text)
	}
	structured := rawjson.Get(result, "structuredContent")
	switch {
	case rawjson.Given(structured):
		return append([]byte(nil), structured...), nil
	case len(texts) == 0 && content.Exists(): // images and files
		return []byte(content.Raw), nil
	case !content.Exists(): // against the protocol
		return append([]byte(nil), result...), nil
	case jsonrpc.Valid([]byte(text), maxDepth):
		return []byte(text), nil
	}
	return []byte(rawjson.Quote(text)), nil
}

// findsTool reports whether m calls one of the bridge's own tools that Menu answers.
func findsTool(m *jsonrpc.Message) bool {
	return m.Method == "tools/call" && (m.Name() == SearchTools || m.Name() == script.Tool)
}

// Answers reports whether m is a request that a Menu may answer: a call of one of its own tools, or a request for the
// list of tools or for a greeting.
func Answers(m *jsonrpc.Message) bool {
	return m.Method == list.Tools.Method() || m.Method == "initialize" || m.Method == "server/discover" || findsTool(m)
}
