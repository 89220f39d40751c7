package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// shop is a fake server that lists what it is given and says what it was asked.
func shop(name string, lists map[string]string) *fake {
	f := &fake{result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{},"x-` + name + `":{}},` +
		`"serverInfo":{"name":"` + name + `","version":"1"},"instructions":"ask ` + name + `"}`}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if list, ok := lists[m.Method]; ok {
			f.answer(m, list)
			return true
		}
		switch m.Method {
		case "tools/call", "prompts/get", "resources/read", "completion/complete":
			if m.Method == "resources/read" && lists["unreadable"] != "" {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such thing"}}`, m.ID))
				return true
			}
			f.answer(m, fmt.Sprintf(`{"by":%q,"params":%s}`, name, m.Append(nil, nil, nil)[len(`{"jsonrpc":"2.0","method":"","params":`)+len(m.Method):len(m.Append(nil, nil, nil))-1]))
			return true
		}
		return false
	}
	return f
}

// toolList is a result of tools/list with tools of these names.
func toolList(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf(`{"description":"d","name":%q,"inputSchema":{"type":"object","x":1e400}}`, n))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// stock is a server of a test, with its options.
type stock struct {
	name   string
	prefix string
	f      bridge.Adapter
	o      ServerOptions
}

// all runs f in a bubble with a bridge to several servers.
func all(t *testing.T, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	allLogged(t, slog.DiscardHandler, servers, f)
}

// allLogged is all, with a log.
func allLogged(t *testing.T, log slog.Handler, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o Options
		for _, s := range servers {
			s.o.Name, s.o.Prefix, s.o.Adapter = s.name, s.prefix, s.f
			o.Servers = append(o.Servers, s.o)
		}
		o.Log, o.Version = slog.New(log), "9"
		g := newGateway(o)
		f(t, g)
		g.Close(context.Background())
		if n := g.lanes.Open(); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// enter starts a session with all servers as one.
func enter(t *testing.T, g *gateway) (*sitting, *stream, string) {
	t.Helper()
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint("id", sessions.Add(1))})
	if err != nil {
		t.Fatalf("Initialize: %s, %v", bridgetest.Text(m), err)
	}
	st := &stream{}
	s.Attach(st)
	s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	return s, st, string(m.Result)
}

// names returns the names or URIs of what a list answer has.
func names(t *testing.T, answer string) []string {
	t.Helper()
	var out []string
	for k := range list.Kinds {
		gjson.Get(answer, "result."+k.Member()).ForEach(func(_, v gjson.Result) bool {
			out = append(out, v.Get(k.Key()).String())
			return true
		})
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
