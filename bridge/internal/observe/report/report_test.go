package report_test

import (
	"context"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// answering is a server that gives the same answer to all.
type answering struct {
	bridge.Upstream
	answer *jsonrpc.Message
}

func (a answering) Server() *bridge.Greeting { return &bridge.Greeting{Revision: "2025-11-25"} }

func (a answering) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return a.answer, nil
}

func weightless(string, *bridge.Caller, *jsonrpc.Message) error { return nil }

// BenchmarkWatch measures what it adds to a call that it is reported.
func BenchmarkWatch(b *testing.B) {
	for _, test := range []struct {
		name string
		to   func(report.Report)
	}{{"off", nil}, {"on", func(report.Report) {}}} {
		b.Run(test.name, func(b *testing.B) {
			reports := report.New(test.to, weightless, nil, nil)
			up := reports.Server("s", func() string { return "" }).Wrap(answering{answer: bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"result":{}}`)})
			m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			from := &bridge.Caller{Revision: "2025-11-25"}
			b.ReportAllocs()
			for b.Loop() {
				var a report.Arrival
				came := reports.Arrive(&a, "", "", "01234567", nil, "", nil)
				r := bridge.Request{Message: m, From: from, Call: came.Call()}
				answer, err := up.Call(b.Context(), &r)
				reports.Depart(came, from, m, answer, err)
			}
		})
	}
}
