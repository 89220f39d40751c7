package streamable

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

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
