package sse

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

func TestEventsUnderWay(t *testing.T) {
	for _, inPost := range []bool{false, true} {
		t.Run(fmt.Sprint("in the answer to the POST ", inPost), func(t *testing.T) {
			rest := make(chan struct{}, 1)
			f := &fakePeer{}
			f.post = func(w http.ResponseWriter, r *http.Request, s *stream, body []byte) bool {
				var m struct {
					ID     json.RawMessage
					Method string
					Params struct{ Name string }
				}
				_ = json.Unmarshal(body, &m)
				if m.Method == adaptertest.Rest {
					rest <- struct{}{}
				}
				if m.Method != "tools/call" {
					return true
				}
				first, second := adaptertest.Halves(string(m.ID))
				write := func(text string) {
					_, _ = io.WriteString(w, text)
					w.(http.Flusher).Flush()
				}
				if inPost {
					w.Header().Set("Content-Type", "application/json")
				} else {
					w.WriteHeader(http.StatusAccepted)
					write = s.write
					first, second = "data: "+first, second+"\n\n"
				}
				write(first)
				if m.Params.Name == "halves" {
					select {
					case <-rest:
					case <-r.Context().Done():
					case <-s.over:
					}
				}
				write(second)
				return false
			}
			u, _ := serve(t, f, remote.Config{}, conn.Options{})
			adaptertest.Intake(t, u)
		})
	}
}
