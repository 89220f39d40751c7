package streamable

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/httpio"
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

func TestResponsesUnderWay(t *testing.T) {
	for _, test := range []struct{ name, kind, before, after string }{
		{"JSON", httpio.JSON, "", ""},
		{"events", httpio.Events, "data: ", "\n\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rest := make(chan struct{}, 1)
			var s *script
			s = newScript(t, &script{
				note: func(w http.ResponseWriter, _ *http.Request) {
					if last := s.requests(); last[len(last)-1].method == adaptertest.Rest {
						rest <- struct{}{}
					}
					w.WriteHeader(http.StatusAccepted)
				},
				post: func(w http.ResponseWriter, r *http.Request, id string) {
					all := s.requests()
					first, second := adaptertest.Halves(id)
					w.Header().Set("Content-Type", test.kind)
					_, _ = io.WriteString(w, test.before+first)
					if strings.Contains(all[len(all)-1].body, "halves") {
						w.(http.Flusher).Flush()
						select {
						case <-rest:
						case <-r.Context().Done():
						}
					}
					_, _ = io.WriteString(w, second+test.after)
				},
			})
			adaptertest.Intake(t, adapter(t, s.URL, nil, conn.Options{Era: conn.EraLegacy}))
		})
	}
}
