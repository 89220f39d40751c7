package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// cutEvent is event n of the stream of a call: 0 primes, 1 and 2 report progress, and 3 has the answer.
func cutEvent(ids bool, id string, n int) string {
	text := ""
	if ids {
		text = fmt.Sprintf("retry: 1\nid: %s-%d\n", id, n)
	}
	switch n {
	case 0:
		return text + "data: \n\n"
	case 1, 2:
		return text + fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: \"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", id, n)
	}
	return text + fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"done\":true}}\n\n", id)
}

func cutEvents(ids bool, id string, from int) (text string) {
	for n := from; n < 4; n++ {
		text += cutEvent(ids, id, n)
	}
	return text
}

// cut breaks the connection behind that many bytes of a response, if there is more of it.
func cut(w http.ResponseWriter, text string, at int) {
	fmt.Fprint(w, text[:min(at, len(text))])
	if at >= len(text) {
		return
	}
	flush(w)
	panic(http.ErrAbortHandler)
}

// Wherever the response to a call breaks, the call has one outcome, and is sent once. What can be resumed loses and
// repeats nothing (D0.8, R-053, R-054). A modern server is not asked to resume.
func TestUpstreamCutAtEveryByte(t *testing.T) {
	for _, c := range []struct {
		name              string
		json, ids, modern bool
	}{
		{"JSON", true, false, false},
		{"events", false, false, false},
		{"events with ids", false, true, false},
		{"modern", false, false, true},
		{"modern with ids", false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var saved sync.Map // whether a call has a chance, by where it is cut
			whole := func(id string) string {
				if c.json {
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"done":true}}`, id)
				}
				return cutEvents(c.ids, id, 0)
			}
			post := func(w http.ResponseWriter, r *http.Request, id string) {
				at, _ := strconv.Atoi(r.Header.Get("X-Cut"))
				text := whole(id)
				events := strings.Count(text[:min(at, len(text))], "\n\n")
				saved.Store(at, at >= len(text) || events == 4 || c.ids && !c.modern && events > 0)
				if c.json {
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Content-Length", strconv.Itoa(len(text)))
				} else {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				cut(w, text, at)
			}
			var s *script
			var up bridge.Upstream
			var rest *adaptertest.Client
			if c.modern {
				s = newModern(t, post)
				up, rest = s.visit(t, conn.Options{})
			} else {
				s = newScript(t, &script{session: "s", post: post})
				s.get = func(w http.ResponseWriter, r *http.Request) {
					id, n, resumes := strings.Cut(r.Header.Get("Last-Event-ID"), "-")
					if !resumes {
						w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					at, _ := strconv.Atoi(r.Header.Get("X-Cut"))
					last, _ := strconv.Atoi(n)
					events(w)
					cut(w, cutEvents(true, id, last+1), max(at, len(cutEvent(true, id, last+1)))) // enough to get on
				}
				up, rest = s.connect(t, conn.Options{})
			}
			calls := 0
			places := make(chan int)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for at := range places {
						back := &adaptertest.Client{}
						m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask), Back: back, Header: http.Header{"X-Cut": {strconv.Itoa(at)}}})
						if chance, _ := saved.Load(at); chance == false {
							if !errors.Is(err, bridge.ErrLost) || errors.Is(err, bridge.ErrUnsent) {
								t.Errorf("cut at %d: %s, %v, want ErrLost", at, adaptertest.Text(m), err)
							}
							continue
						}
						if err != nil || string(m.Result) != `{"done":true}` {
							t.Errorf("cut at %d: %s, %v, want the result", at, adaptertest.Text(m), err)
						}
						if said := back.Said(); !c.json && (len(said) != 2 || !strings.Contains(said[0], `"progress":1`) || !strings.Contains(said[1], `"progress":2`)) {
							t.Errorf("cut at %d: progress %q", at, said)
						}
					}
				})
			}
			for at := 0; at <= len(whole("1000")); at += scaletest.Alone(5, 1) {
				places <- at
				calls++
			}
			close(places)
			all.Wait()
			if n := s.of("POST tools/call"); n != calls {
				t.Errorf("%d POSTs of %d calls", n, calls)
			}
			rest.NoGone(t)
		})
	}
}
