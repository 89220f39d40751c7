package limits

import (
	"context"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// answering is an Upstream that answers at once.
type answering struct {
	bridge.Upstream
	answer jsonrpc.Message
}

func (a *answering) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return &a.answer, nil
}

// BenchmarkLimits measures what the limits of a server cost a call, on top of
// nothing at all: places, places in a crowd of principals, and rates for the
// server and a tool.
func BenchmarkLimits(b *testing.B) {
	m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_all"}}`)
	up := &answering{answer: *bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"result":{}}`)}
	many := Rate{PerSecond: 1e8, Burst: 1e8}
	for _, test := range []struct {
		name string
		make func() bridge.Upstream
	}{
		{"off", func() bridge.Upstream { return up }},
		{"places", func() bridge.Upstream {
			return NewQueue("x", Options{}).Slots().Wrap(up)
		}},
		{"places of principals", func() bridge.Upstream {
			return NewQueue("x", Options{PerPrincipal: 100}).Slots().Wrap(up)
		}},
		{"rate", func() bridge.Upstream { return NewRates("x", Options{Rate: many}).Wrap(up) }},
		{"rates", func() bridge.Upstream {
			return NewRates("x", Options{Rate: many, Tools: map[string]Rate{"search_*": many, "index": many}}).Wrap(up)
		}},
	} {
		b.Run(test.name, func(b *testing.B) {
			up := test.make()
			r := &bridge.Request{Message: m, From: &bridge.Caller{Principal: "p"}, Back: bridge.Nobody{}}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := up.Call(ctx, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("quota", func(b *testing.B) {
		q := NewQuota(PerPrincipal{Rate: many})
		from := &bridge.Caller{Principal: "p"}
		b.ReportAllocs()
		for b.Loop() {
			if err := q.Enter(from, m); err != nil {
				b.Fatal(err)
			}
			q.Leave(from)
		}
	})
}
