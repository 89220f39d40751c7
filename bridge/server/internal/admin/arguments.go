package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// ArgumentsChecked is the result of checking arguments without calling the tool.
type ArgumentsChecked struct {
	OK     bool            `json:"ok"`
	Faults []ArgumentFault `json:"faults"`
}

// ArgumentFault is one fault of the arguments.
type ArgumentFault struct {
	Path    string `json:"path,omitempty"` // such as body.tags[2]; empty for the arguments as a whole
	Message string `json:"message"`
}

const (
	// maxFaults bounds the faults of one answer.
	maxFaults = 100
	// ownParams are the params of initialize, with which the bridge lists a server's tools.
	ownParams = `{"protocolVersion":"` + era.LatestLegacy + `","capabilities":{},"clientInfo":{"name":"mcp-bridge","title":"the admin API of mcp-bridge","version":"1"}}`
)

// discard drops the messages of a server while its tools are listed.
type discard struct{}

func (discard) Send(e replay.Event) bool {
	if e.Free != nil {
		e.Free()
	}
	return true
}

// checkArguments checks arguments by the tool's schema, as the caller sees it. checkArguments does not call the tool.
func (o *Operator) checkArguments(c *Call) (any, error) {
	var asked struct {
		Server    string          `json:"server"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := Read(c.Body, &asked); err != nil {
		return nil, err
	}
	if asked.Server == "" || asked.Tool == "" {
		return nil, &Refusal{http.StatusBadRequest, "body", `server and tool are missing: send {"server": "files", "tool": "read_file", "arguments": {}}`}
	}
	schema, err := o.schema(c, asked.Server, asked.Tool)
	if err != nil {
		return nil, err
	}
	err = validate.NewCache(1).VerifyNamed(schema, asked.Arguments)
	faults, wrong := errors.AsType[validate.Faults](err)
	if err != nil && !wrong {
		return nil, &Refusal{http.StatusUnprocessableEntity, "schema", err.Error()}
	}
	out := ArgumentsChecked{OK: !wrong, Faults: []ArgumentFault{}}
	for _, f := range faults.Of(asked.Tool)[:min(len(faults), maxFaults)] {
		out.Faults = append(out.Faults, ArgumentFault{f.Path, f.Text})
	}
	return out, nil
}

// schema lists the tools of a server, and returns the input schema of one tool. schema acts like a client of the
// caller that sends no headers but its key.
func (o *Operator) schema(c *Call, server, tool string) (schema []byte, err error) {
	from := &bridge.Caller{
		Principal:    c.Principal,
		Revision:     era.LatestModern,
		Capabilities: []byte("{}"),
		Params:       []byte(ownParams),
	}
	var names []string
	_, _ = list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		var m *jsonrpc.Message
		m, err = o.Bridge.Call(c.Context, from.Request(list.Tools.Method(), params), gateway.Stateless{
			Server: server,
			From:   from,
			Back:   discard{},
		})
		switch {
		case err == nil && m == nil: // the caller left
			err = cmp.Or(context.Cause(c.Context), bridge.ErrCancelled)
		case err == nil && m.Error != nil:
			err = errors.New(gjson.GetBytes(m.Error, "message").String())
		}
		return m, err
	}, func(page []byte, _, _ bool) {
		gjson.GetBytes(page, "tools").ForEach(func(_, one gjson.Result) bool {
			name := one.Get("name").String()
			if names = append(names, name); name == tool && schema == nil {
				schema = []byte("{}")
				if s := one.Get("inputSchema"); s.IsObject() {
					schema = []byte(s.Raw)
				}
			}
			return true
		})
	})
	switch {
	case schema != nil:
		return schema, nil
	case errors.Is(err, bridge.ErrUnknownServer):
		return nil, NotFound("server of that name")
	case errors.Is(err, bridge.ErrDenied):
		return nil, &Refusal{http.StatusForbidden, "denied", "this caller may not use the server: add it to servers of the caller's rule under access in the configuration file"}
	case err != nil:
		return nil, &Refusal{http.StatusServiceUnavailable, "unavailable", "the tools of the server cannot be listed: " + bridge.Brief(err)}
	}
	return nil, NotFound("tool of that name: " + similar.Hint(tool, names, "the server has none"))
}
