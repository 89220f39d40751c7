package placement

import (
	"context"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// ServeTunnel implements peer.Owners.
func (o *Owners) ServeTunnel(w http.ResponseWriter, r *http.Request) { o.tunnels.Serve(w, r) }

// tunnelAdapter is the Adapter behind the tunnels of other instances: each joins a shared connection of this
// instance.
type tunnelAdapter Owners

// Open joins the shared connection that the headers of the tunnel name.
func (t *tunnelAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	o := (*Owners)(t)
	server, _ := peer.Decode(from.Header.Get(peer.ServerHeader))
	affinity, _ := peer.Decode(from.Header.Get(peer.AffinityHeader))
	_, c, done, err := o.acquire(ctx, server, affinity, tunnelLinger, false)
	if err == nil && c == nil {
		err = peer.ErrElsewhere
	}
	if err != nil {
		return nil, unreachable(server, err)
	}
	its := *from
	its.Header, its.Identity = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	joint, forward, err := o.o.Gateway.Join(server, its, rest)
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
	s := &sharedUpstream{
		Joined:   joint,
		greeting: joint.Server(),
		forward:  forward,
	}
	moved := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{
			Server: server,
			Kind:   bridge.ErrLost,
			Err:    peer.ErrElsewhere,
			Public: movedText,
		})
	})
	s.end = func() {
		moved()
		release()
		done()
	}
	return s, nil
}

// sharedUpstream is the use of a shared connection by one tunnel.
type sharedUpstream struct {
	gateway.Joined
	greeting *bridge.Greeting
	forward  []bridge.Forward
	end      func()
}

// Server returns the greeting of the server at the time of Open.
func (s *sharedUpstream) Server() *bridge.Greeting { return s.greeting }

// TakesEdits implements bridge.TakesEdits.
func (s *sharedUpstream) TakesEdits() {}

// Attributes implements bridge.Attributing: the other instance gets each question on the stream of its call, if
// the server attributes questions.
func (s *sharedUpstream) Attributes() bool { return true }

// Call makes a call. Call translates headers from the names that the server expects to the names that its lane reads:
// names of the client, and claims.
func (s *sharedUpstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header, r.Identity = s.forwarded(r.Header)
	return s.Joined.Call(ctx, r)
}

// Notify sends a notification, and translates headers as Call does.
func (s *sharedUpstream) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header, r.Identity = s.forwarded(r.Header)
	return s.Joined.Notify(ctx, r)
}

func (s *sharedUpstream) forwarded(h http.Header) (http.Header, *identity.Identity) {
	if h == nil {
		return nil, nil
	}
	its, id := peer.DecodeHeader(h.Get(peer.ForwardHeader))
	out, claims := http.Header{}, map[string][]string{}
	for _, f := range s.forward {
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
func (s *sharedUpstream) Close(ctx context.Context) error {
	err := s.Joined.Close(ctx)
	s.end()
	return err
}
