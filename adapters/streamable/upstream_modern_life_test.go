package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// wherever the stream of a call breaks, the call has one outcome,
// is sent once, and nothing is resumed.
func TestUpstreamModernCutAtEveryByte(t *testing.T) {
	for _, ids := range []bool{false, true} {
		t.Run(fmt.Sprintf("ids %v", ids), func(t *testing.T) {
			c := &cuts{ids: ids}
			var whole sync.Map // whether the answer is in what was sent, by where it is cut
			c.script = newModern(t, func(w http.ResponseWriter, r *http.Request, id string) {
				at, _ := strconv.Atoi(r.Header.Get("X-Cut"))
				text := c.whole(id, 0)
				text = text[:min(at, len(text))]
				whole.Store(at, strings.Count(text, "\n\n") == 4)
				events(w)
				fmt.Fprint(w, text)
				flush(w)
				panic(http.ErrAbortHandler)
			})
			up, rest := c.visit(t, conn.Options{})
			length, every := len(c.whole("1000", 0)), scaletest.Alone(5, 1)
			places := make(chan int)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for at := range places {
						back := &adaptertest.Client{}
						m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask), Back: back, Header: http.Header{"X-Cut": {strconv.Itoa(at)}}})
						if in, _ := whole.Load(at); in == false {
							if !errors.Is(err, bridge.ErrLost) || errors.Is(err, bridge.ErrUnsent) {
								t.Errorf("cut at %d: %s, %v, want ErrLost", at, adaptertest.Text(m), err)
							}
							continue
						}
						if err != nil || string(m.Result) != `{"done":true}` || len(back.Said()) != 2 {
							t.Errorf("cut at %d: %s, %v, progress %q, want the result", at, adaptertest.Text(m), err, back.Said())
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

// R-091, B11: a call that is given up ends its stream, wherever it stands, and
// nothing else is sent. That goes for subscriptions too.
func TestUpstreamModernCancel(t *testing.T) {
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s begun %v", method, begun), func(t *testing.T) {
				arrived, ended := make(chan struct{}), make(chan struct{})
				s := newModern(t, func(w http.ResponseWriter, r *http.Request, id string) {
					defer close(ended)
					if begun {
						events(w)
						fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{}}\n\n")
						flush(w)
					}
					close(arrived)
					<-r.Context().Done()
				})
				up, rest := s.visit(t, conn.Options{})
				back := &adaptertest.Client{}
				why := errors.New("changed my mind")
				ctx, stop := context.WithCancelCause(t.Context())
				call := adaptertest.Go(ctx, t, up, back, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{}}`)
				<-arrived
				if begun {
					back.WaitSaid(t, 1)
				}
				stop(why)
				if o := <-call; !errors.Is(o.Err, why) {
					t.Errorf("the call ended with %q, %v, want %v", o.Answer, o.Err, why)
				}
				<-ended
				if err := up.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if got := s.lines(); !slices.Equal(got, []string{"server/discover", method}) {
					t.Errorf("the server received %q", got)
				}
				if gone := rest.Gones(); len(gone) > 0 {
					t.Errorf("Gone(%v)", gone)
				}
			})
		}
	}
}

// B10: a subscription whose stream ends without a word is lost; one that the
// server ends has its result.
func TestUpstreamModernListenEnds(t *testing.T) {
	const ack = `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$id}}}` + "\n\n"
	for _, c := range []struct {
		name, rest string
		want       string // the result; empty means ErrLost
	}{
		{"a result", `data: {"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete"}}` + "\n\n", `{"resultType":"complete"}`},
		{"a result and the notification", `data: {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$id}}` + "\n\n" + `data: {"jsonrpc":"2.0","id":$id,"result":{}}` + "\n\n", `{}`},
		{"nothing", "", ""},
		{"half an event", `data: {"jsonrpc":"2.0","id":$id,"res`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newModern(t, streamed(": hello\n\n"+ack+c.rest))
			up, rest := s.visit(t, conn.Options{})
			back := &adaptertest.Client{}
			o := adaptertest.Call(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}`)
			if c.want == "" && !errors.Is(o.Err, bridge.ErrLost) || c.want != "" && o.Result(t) != c.want {
				t.Errorf("the subscription ended with %q, %v", o.Answer, o.Err)
			}
			if said := back.Said(); len(said) != 1 || !strings.Contains(said[0], "acknowledged") {
				t.Errorf("it heard %q, want the acknowledgement", said)
			}
			adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`) // the connection is good yet
			if gone, said := rest.Gones(), rest.Said(); len(gone)+len(said) > 0 {
				t.Errorf("Gone(%v), said %q", gone, said)
			}
		})
	}
}

// D0.8: a request that cannot have reached the server is repeated, another one is not.
func TestUpstreamModernUnreachable(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := newModern(t, cutOff)
	up, rest := s.visit(t, conn.Options{})
	if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrLost) {
		t.Errorf("a call that was cut off ended with %q, %v, want ErrLost", o.Answer, o.Err)
	}
	if n := s.of("POST tools/call"); n != 1 {
		t.Errorf("%d POSTs, want 1", n)
	}
	s.Close()
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		if o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`); !errors.Is(o.Err, bridge.ErrUnavailable) {
			t.Errorf("%s to nobody ended with %q, %v, want ErrUnavailable", method, o.Answer, o.Err)
		}
	}
	if gone := rest.Gones(); len(gone) > 0 {
		t.Errorf("Gone(%v)", gone)
	}
}

// C2.4: a server that never knew server/discover is not another one because it
// does not know it still.
func TestUpstreamModernUndiscovered(t *testing.T) {
	notFound := respond(404, failure("$id", -32601, "Method not found"))
	p := newProbed(t, notFound, notFound, func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("Mcp-Method") == "tools/call" {
			w.WriteHeader(404)
			return
		}
		lists(w, r, id)
	})
	rest := &adaptertest.Client{}
	up := adaptertest.OpenModern(t, adapter(t, p.URL, nil, conn.Options{}), rest)
	if got := string(up.Server().Capabilities); got != `{"tools":{}}` {
		t.Errorf("Capabilities = %s, want what it lists", got)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnavailable) || errors.Is(o.Err, bridge.ErrUnsent) {
		t.Errorf("the call ended with %q, %v, want ErrUnavailable", o.Answer, o.Err)
	}
	if n := p.of("POST server/discover"); n != 2 {
		t.Errorf("%d times asked what the server is, want 2", n)
	}
	if gone := rest.Gones(); len(gone) > 0 {
		t.Errorf("Gone(%v)", gone)
	}
}

// redirects are followed within the server, with the headers that say what
// the body does, and for subscriptions too.
func TestUpstreamModernRedirects(t *testing.T) {
	s := newModern(t, echo)
	var target atomic.Value
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp/" {
			s.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, target.Load().(string), http.StatusTemporaryRedirect)
	})
	u := adapter(t, s.URL+"/mcp", map[string]string{"Authorization": "Bearer secret"}, conn.Options{Era: conn.EraModern})
	target.Store("/mcp/")
	up := adaptertest.OpenModern(t, u, &adaptertest.Client{})
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"n"}}`).Result(t)
		if h := s.wait(t, 1, "POST "+method)[0].header; h.Get("Mcp-Method") != method || h.Get("Authorization") == "" {
			t.Errorf("%s: headers %v", method, h)
		}
	}
	target.Store("http://elsewhere.invalid/mcp/")
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)
		if !errors.Is(o.Err, bridge.ErrUnavailable) || !strings.Contains(o.Err.Error(), "another origin") || strings.Contains(o.Err.Error(), "elsewhere") {
			t.Errorf("%s: %q, %v, want ErrUnavailable", method, o.Answer, o.Err)
		}
	}
}
