package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

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
				rest.NoGone(t)
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
	rest.NoGone(t)
}
