package gateway

import (
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
)

// BenchmarkBreaker measures what the breaker and the retries add to a call, with
// and without somebody to whom the server can speak meanwhile.
func BenchmarkBreaker(b *testing.B) {
	for _, test := range []struct {
		name string
		o    ServerOptions
		back bridge.Client
	}{
		{"off", ServerOptions{Breaker: Breaker{Off: true}, Retry: retry.Options{Off: true}}, bridge.Nobody{}},
		{"on/nobody", ServerOptions{}, nil},
		{"on", ServerOptions{}, bridge.Nobody{}},
		{"slow", ServerOptions{Breaker: Breaker{Slow: time.Minute}, Retry: retry.Options{Tools: true}}, bridge.Nobody{}},
	} {
		b.Run(test.name, func(b *testing.B) {
			test.o.Name = "s"
			br := New(Options{Servers: []ServerOptions{test.o}})
			defer br.Close(b.Context())
			rt := br.routes[0]
			e := &echoing{passing: passing{s: &bridge.Greeting{Revision: latest}}}
			e.answer = *bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			w := &wire{raw: e, l: newLane(rt, &bridge.Caller{}, bridge.Nobody{}, (*origin)(nil))}
			w.up = rt.breaker.joined(w)
			up := rt.retries.Wrap(w.up)
			r := &bridge.Request{Message: bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`), From: &bridge.Caller{}, Back: test.back}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := up.Call(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
