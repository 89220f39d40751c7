package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
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
			var at atomic.Int64
			cut := func(w http.ResponseWriter, text string) {
				events(w)
				fmt.Fprint(w, text[:min(int(at.Load()), len(text))])
				flush(w)
				panic(http.ErrAbortHandler)
			}
			c.script = newScript(t, &script{session: "s", post: func(w http.ResponseWriter, _ *http.Request, id string) { cut(w, c.whole(id, 0)) }})
			c.get = func(w http.ResponseWriter, r *http.Request) {
				id, n, resumes := strings.Cut(r.Header.Get("Last-Event-ID"), "-")
				if !resumes {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				var last int
				fmt.Sscan(n, &last)
				at.Store(max(at.Load(), int64(len(c.event(id, last+1))))) // enough to get on
				cut(w, c.whole(id, last+1))
			}
			up, rest := c.connect(t, UpstreamOptions{})
			length := len(c.whole("10", 0))
			for k := range length + 1 {
				at.Store(int64(k))
				id := fmt.Sprint(k + 2) // initialize was the first
				back := &adaptertest.Client{}
				o := adaptertest.Call(t.Context(), t, up, back, ask)
				text := c.whole(id, 0)[:min(k, len(c.whole(id, 0)))]
				complete := strings.Count(text, "\n\n") == 4
				switch {
				case complete, ids && strings.Contains(text, "\n\n"):
					if got := o.Result(t); got != `{"done":true}` {
						t.Fatalf("cut at %d: %s", k, got)
					}
					if said := back.Said(); len(said) != 2 || !strings.Contains(said[0], `"progress":1`) || !strings.Contains(said[1], `"progress":2`) {
						t.Fatalf("cut at %d: progress %q", k, said)
					}
				case !errors.Is(o.Err, bridge.ErrLost) || errors.Is(o.Err, bridge.ErrUnsent):
					t.Fatalf("cut at %d: %q, %v, want ErrLost", k, o.Answer, o.Err)
				}
			}
			if n := len(c.wait(t, length+1, "POST tools/call")); n != length+1 {
				t.Errorf("%d POSTs of %d calls", n, length+1)
			}
			if gone := rest.Gones(); len(gone) > 0 {
				t.Errorf("Gone(%v)", gone)
			}
			_ = up.Close(context.Background())
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
	up, _ := s.connect(t, UpstreamOptions{})
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
