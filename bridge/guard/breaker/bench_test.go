package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// instant is a connection that answers at once, and is idle.
type instant struct {
	bridge.Upstream
	answer *jsonrpc.Message
}

func (i instant) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return i.answer, nil
}
func (instant) Idle() (open, idle bool)                   { return true, true }
func (instant) Ping(context.Context, time.Duration) error { return nil }
func (instant) Asked() int64                              { return 0 }
func (instant) Gone(error)                                {}

// BenchmarkBreaker measures what the breaker adds to a call, with and without
// somebody to whom the server can speak meanwhile.
func BenchmarkBreaker(b *testing.B) {
	for _, test := range []struct {
		name string
		o    breaker.Options
		back bridge.Client
	}{
		{"off", breaker.Options{Off: true}, bridge.Nobody{}},
		{"on/nobody", breaker.Options{}, nil},
		{"on", breaker.Options{}, bridge.Nobody{}},
		{"slow", breaker.Options{Slow: time.Minute}, bridge.Nobody{}},
	} {
		b.Run(test.name, func(b *testing.B) {
			i := instant{answer: bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"result":{}}`)}
			opened, err := breaker.New(test.o, breaker.Server{Name: "s"}).Opening(b.Context(), &bridge.Caller{}, false)
			if err != nil {
				b.Fatal(err)
			}
			up := opened(i, i, nil)
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
