package placement

import (
	"context"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// Lane implements peer.Homes.
func (h *Homes) Lane(w http.ResponseWriter, r *http.Request) { h.inner.Serve(w, r) }

// shared is the Adapter for the lanes of other instances: its connections are parts in those
// that live here.
type shared Homes

// Open joins the shared connection that the headers of the session name.
func (s *shared) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h := (*Homes)(s)
	server, _ := peer.Decode(from.Header.Get(peer.ServerHeader))
	alike, _ := peer.Decode(from.Header.Get(peer.AlikeHeader))
	_, c, done, err := h.hold(ctx, server, alike, homeLinger)
	if err == nil && c == nil {
		err = peer.ErrElsewhere
	}
	if err != nil {
		return nil, unreachable(server, err)
	}
	its := *from
	its.Header, its.Identity = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	joint, forward, err := h.o.Gateway.Joint(server, its, rest)
	if err != nil {
		done()
		return nil, err
	}
	release, err := joint.Keep(ctx)
	if err != nil {
		_ = joint.Close(ctx)
		done()
		return nil, err
	}
	p := &part{Joint: joint, greeting: joint.Server(), forward: forward}
	moved := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{Server: server, Kind: bridge.ErrLost, Err: peer.ErrElsewhere, Public: movedText})
	})
	p.end = func() {
		moved()
		release()
		done()
	}
	return p, nil
}

// part is the part that the lane of another instance has in a shared connection.
type part struct {
	Joint
	greeting *bridge.Greeting
	forward  []bridge.Forward
	end      func()
}

// Server returns what the handshake said when the part began.
func (p *part) Server() *bridge.Greeting { return p.greeting }

// TakesEdits implements bridge.TakesEdits.
func (p *part) TakesEdits() {}

// Attributes implements bridge.Attributing: the other instance hears each question on
// the stream of the call that it is about, if the server says that.
func (p *part) Attributes() bool { return true }

// Call makes a call. Headers come under the names that the server knows, and go on as its
// lane looks for them: under the client's names, and as claims.
func (p *part) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header, r.Identity = p.named(r.Header)
	return p.Joint.Call(ctx, r)
}

// Notify sends a notification.
func (p *part) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header, r.Identity = p.named(r.Header)
	return p.Joint.Notify(ctx, r)
}

func (p *part) named(h http.Header) (http.Header, *identity.Identity) {
	if h == nil {
		return nil, nil
	}
	its, id := peer.DecodeHeader(h.Get(peer.ForwardHeader))
	out, claims := http.Header{}, map[string][]string{}
	for _, f := range p.forward {
		switch values := its[f.To]; {
		case len(values) == 0 || f.Token:
		case f.Claim != "":
			claims[f.Claim] = values
		default:
			out[f.From] = values
		}
	}
	return out, identity.New(claims, identity.SubjectOf(id))
}

// Close leaves the shared connection.
func (p *part) Close(ctx context.Context) error {
	err := p.Joint.Close(ctx)
	p.end()
	return err
}
