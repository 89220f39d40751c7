package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// cuts is a server whose streams break after so many bytes. Each call says at
// which.
type cuts struct {
	*script
	ids bool
}

func (c *cuts) event(id string, n int) string {
	text := ""
	if c.ids {
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

func (c *cuts) whole(id string, from int) string {
	text := ""
	for n := from; n < 4; n++ {
		text += c.event(id, n)
	}
	return text
}

// D0.8, R-053, R-054: wherever the stream of a call breaks, the call has one
// outcome, is sent once, and what can be resumed loses and repeats nothing.
func TestUpstreamCutAtEveryByte(t *testing.T) {
	for _, ids := range []bool{false, true} {
		t.Run(fmt.Sprintf("ids %v", ids), func(t *testing.T) {
			c := &cuts{ids: ids}
			var saved sync.Map // whether a call has a chance, by where it is cut
			cut := func(w http.ResponseWriter, text string, at int) {
				events(w)
				fmt.Fprint(w, text[:min(at, len(text))])
				flush(w)
				panic(http.ErrAbortHandler)
			}
			c.script = newScript(t, &script{session: "s", post: func(w http.ResponseWriter, r *http.Request, id string) {
				at, _ := strconv.Atoi(r.Header.Get("X-Cut"))
				text := c.whole(id, 0)
				whole := strings.Count(text[:min(at, len(text))], "\n\n")
				saved.Store(at, whole == 4 || ids && whole > 0)
				cut(w, text, at)
			}})
			c.get = func(w http.ResponseWriter, r *http.Request) {
				id, n, resumes := strings.Cut(r.Header.Get("Last-Event-ID"), "-")
				if !resumes {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				at, _ := strconv.Atoi(r.Header.Get("X-Cut"))
				last, _ := strconv.Atoi(n)
				cut(w, c.whole(id, last+1), max(at, len(c.event(id, last+1)))) // enough to get on
			}
			up, rest := c.connect(t, conn.Options{})
			length, every := len(c.whole("1000", 0)), scaletest.Alone(5, 1)
			places := make(chan int)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for at := range places {
						back := &adaptertest.Client{}
						m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask), Back: back, Header: http.Header{"X-Cut": {strconv.Itoa(at)}}})
						chance, _ := saved.Load(at)
						if chance == false {
							if !errors.Is(err, bridge.ErrLost) || errors.Is(err, bridge.ErrUnsent) {
								t.Errorf("cut at %d: %s, %v, want ErrLost", at, adaptertest.Text(m), err)
							}
							continue
						}
						if err != nil || string(m.Result) != `{"done":true}` {
							t.Errorf("cut at %d: %s, %v, want the result", at, adaptertest.Text(m), err)
						}
						if said := back.Said(); len(said) != 2 || !strings.Contains(said[0], `"progress":1`) || !strings.Contains(said[1], `"progress":2`) {
							t.Errorf("cut at %d: progress %q", at, said)
						}
					}
				})
			}
			for at := 0; at <= length; at += every {
				places <- at
			}
			close(places)
			all.Wait()
			if n := c.of("POST tools/call"); n != length/every+1 {
				t.Errorf("%d POSTs of %d calls", n, length/every+1)
			}
			if gone := rest.Gones(); len(gone) > 0 {
				t.Errorf("Gone(%v)", gone)
			}
		})
	}
}

// A JSON answer that breaks is lost, wherever it does.
func TestUpstreamCutJSON(t *testing.T) {
	var cut atomic.Int64
	s := newScript(t, &script{post: func(w http.ResponseWriter, _ *http.Request, id string) {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		at := int(cut.Load())
		if at == len(text) {
			fmt.Fprint(w, text)
			return
		}
		fmt.Fprint(w, text[:at])
		flush(w)
		panic(http.ErrAbortHandler)
	}})
	up, _ := s.connect(t, conn.Options{})
	for calls := 1; ; calls++ {
		o := adaptertest.Call(t.Context(), t, up, nil, ask)
		if o.Err == nil {
			o.Result(t)
			if n := len(s.wait(t, calls, "POST tools/call")); n != calls || calls < 30 {
				t.Errorf("%d POSTs of %d calls", n, calls)
			}
			return
		}
		if !errors.Is(o.Err, bridge.ErrLost) {
			t.Fatalf("cut at %d: %q, %v, want ErrLost", cut.Load(), o.Answer, o.Err)
		}
		cut.Add(1)
	}
}
