package placement

import (
	"context"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// ServeTunnel implements peer.Owners.
func (h *Owners) ServeTunnel(w http.ResponseWriter, r *http.Request) { h.tunnels.Serve(w, r) }

// tunnelAdapter is the Adapter behind the tunnels of other instances: each joins a shared connection of this
// instance.
type tunnelAdapter Owners

// Open joins the shared connection that the headers of the tunnel name.
func (s *tunnelAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h := (*Owners)(s)
	server, _ := peer.Decode(from.Header.Get(peer.ServerHeader))
	affinity, _ := peer.Decode(from.Header.Get(peer.AffinityHeader))
	_, c, done, err := h.acquire(ctx, server, affinity, tunnelLinger)
	if err == nil && c == nil {
		err = peer.ErrElsewhere
	}
	if err != nil {
		return nil, unreachable(server, err)
	}
	its := *from
	its.Header, its.Identity = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	joint, forward, err := h.o.Gateway.Join(server, its, rest)
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
	p := &sharedUpstream{SharedConnection: joint, greeting: joint.Server(), forward: forward}
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

// sharedUpstream is the use of a shared connection by one tunnel.
type sharedUpstream struct {
	SharedConnection
	greeting *bridge.Greeting
	forward  []bridge.Forward
	end      func()
}

// Server returns the greeting of the server at the time of Open.
func (p *sharedUpstream) Server() *bridge.Greeting { return p.greeting }

// TakesEdits implements bridge.TakesEdits.
func (p *sharedUpstream) TakesEdits() {}

// Attributes implements bridge.Attributing: the other instance gets each question on the stream of its call, if
// the server attributes questions.
func (p *sharedUpstream) Attributes() bool { return true }

// Call makes a call. It translates headers from the names that the server expects to those that its lane reads: names
// of the client, and claims.
func (p *sharedUpstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header, r.Identity = p.forwarded(r.Header)
	return p.SharedConnection.Call(ctx, r)
}

// Notify sends a notification.
func (p *sharedUpstream) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header, r.Identity = p.forwarded(r.Header)
	return p.SharedConnection.Notify(ctx, r)
}

func (p *sharedUpstream) forwarded(h http.Header) (http.Header, *identity.Identity) {
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
func (p *sharedUpstream) Close(ctx context.Context) error {
	err := p.SharedConnection.Close(ctx)
	p.end()
	return err
}
