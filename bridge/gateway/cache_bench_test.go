package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// twenty is a list of twenty tools of usual size, as a modern server gives it.
var twenty = func() string {
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf(`{"name":"tool_%d","title":"Tool %d","description":%q,"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"What is meant"},"depth":{"type":"integer","minimum":0}},"required":["path"]},"annotations":{"readOnlyHint":true}}`,
			i, i, strings.Repeat("does something useful ", 8)))
	}
	return `"tools":[` + strings.Join(all, ",") + `]`
}()

// BenchmarkCachedList measures a list of twenty tools that is kept, for clients
// and servers of both eras, and what it takes to write the answer.
func BenchmarkCachedList(b *testing.B) {
	legacy := &fake{serve: says(map[string]string{"tools/list": "{" + twenty + "}"})}
	modern := &statelessFake{serve: completely("{" + twenty + `,"ttlMs":86400000,"cacheScope":"private"}`)}
	for _, server := range []struct {
		name    string
		adapter bridge.Adapter
	}{{"legacy", legacy}, {"modern", modern}} {
		b.Run("session/"+server.name, func(b *testing.B) {
			br := benched(b, server.adapter)
			s, _ := begin(b, br, "")
			m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`)
			benchList(b, br, func() (*jsonrpc.Message, error) { return s.Call(m, nil, nil) })
		})
		b.Run("modern/"+server.name, func(b *testing.B) {
			br := benched(b, server.adapter)
			m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{`+statelessReserved+`}}}`)
			s, no := NewStateless("", "", m)
			if no != nil {
				b.Fatal(bridgetest.Text(no))
			}
			s.Back = &stream{}
			benchList(b, br, func() (*jsonrpc.Message, error) { return br.Call(b.Context(), m, *s) })
		})
	}
}

func benched(b *testing.B, a bridge.Adapter) *gateway {
	br := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: a, ServerSettings: ServerSettings{Cache: cache.Options{Lists: maxFresh}}}}, Log: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() { br.Close(context.Background()) })
	return br
}

func benchList(b *testing.B, br *gateway, list func() (*jsonrpc.Message, error)) {
	if _, err := list(); err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		m, err := list()
		if err != nil || m.Error != nil {
			b.Fatal(err, m)
		}
		out = m.Append(out[:0], m.ID, nil)
		m.Release()
	}
	if !strings.Contains(string(out), "tool_19") || !strings.HasPrefix(string(out), `{"jsonrpc":"2.0","id":7`) {
		b.Fatalf("the answer is %s", out)
	}
	if st := br.Status()[0].Cache; st.Misses != 1 {
		b.Fatalf("%+v", st)
	}
}
