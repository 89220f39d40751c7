package streamable

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

var shapes = []shape{
	{name: "events"},
	{name: "json", json: true},
	{name: "questions apart", apart: true},
	{name: "ids", ids: true},
	{name: "polling", ids: true, cut: true},
	{name: "sessionless", sessionless: true},
}

// A modern server passes the suite, with and without the ids of events that it
// must not send.
func TestUpstreamModern(t *testing.T) {
	for i, s := range []shape{{name: "events", modern: true}, {name: "ids", modern: true, ids: true}} {
		run := adaptertest.RunModern
		if i > 0 {
			run = adaptertest.RunModernAgain
		}
		t.Run(s.name, func(t *testing.T) {
			run(t, func(t *testing.T) bridge.Adapter {
				return adapter(t, newHost(t, s).URL, nil, conn.Options{})
			})
		})
	}
}

// Every shape in which servers answer passes the suite.
func TestUpstream(t *testing.T) {
	for i, s := range shapes {
		run := adaptertest.Run
		if i > 0 {
			run = adaptertest.RunAgain
		}
		t.Run(s.name, func(t *testing.T) {
			run(t, func(t *testing.T) bridge.Adapter {
				if s.sessionless && strings.HasSuffix(t.Name(), "/Lost") {
					t.Skip("a server without sessions cannot lose one")
				}
				return adapter(t, newHost(t, s).URL, nil, conn.Options{})
			})
		})
	}
}
