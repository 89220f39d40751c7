package stateless

import (
	"context"
	"errors"
	"strings"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// If there are several instances, the connections of an identity are at one of them, the owner. Otherwise a server with
// a memory would seem to be several servers. The instance that gets the request serves stateless targets: a modern
// server over HTTP, and connections for single calls.

// errLegacy means that the server has sessions, so its connections have an owner.
var errLegacy = errors.New("the server is a legacy one")

// placed makes a call at the instance of its connection.
func (p *Pool) placed(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	again, no := p.legacy.Round(r)
	if no != nil {
		return no, nil
	}
	if again.Parked() {
		at := p.legacy.Elsewhere(again)
		if at == "" {
			return p.legacy.Resume(ctx, r, again)
		}
		return p.resume(ctx, r, at)
	}
	if p.o.Sharing == EachCall {
		return p.make(ctx, r, again, true)
	}
	if !p.o.Process && !p.isLegacy(r) {
		m, err := p.make(ctx, r, again, false)
		if !errors.Is(err, errLegacy) {
			return m, err
		}
	}
	if r.Method != era.Listen {
		return p.toOwner(ctx, r)
	}
	return relisten(ctx, context.Background(), owners{p}, r, &handles{p: p, from: r.From})
}

// resume continues a call that is parked at another instance.
func (p *Pool) resume(ctx context.Context, r *bridge.Request, at string) (*jsonrpc.Message, error) {
	there, err := p.o.Places.Instance(ctx, p.o.Legacy.Name, at)
	if err != nil {
		return nil, err
	}
	var m *jsonrpc.Message
	if there != nil {
		m, err = there.Call(ctx, r)
	}
	if m == nil && err == nil {
		return jsonrpc.InvalidParams("the call of this requestState no longer exists: its instance of the bridge has ended"), nil
	}
	return m, err
}

// toOwner makes a call at the owner of its connection.
func (p *Pool) toOwner(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	alike := "" // the affinity key; empty if the call shares the connection of sessions
	if p.o.Sharing != Everybody {
		alike = apart + string(bridge.IdentityKey(r.From, p.o.Forward))
	}
	return p.o.Places.Home(p.o.Legacy.Name, alike, here{p}).Call(ctx, r)
}

// here makes calls over connections of this instance.
type here struct{ p *Pool }

func (h here) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return h.p.Here(ctx, r)
}

// owners makes calls at the owner of their connection.
type owners struct{ p *Pool }

func (o owners) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return o.p.toOwner(ctx, r)
}

// apart starts the affinity keys of connections that only stateless clients use.
const apart = "stateless\x00"

// ReleaseOwner closes the connections with that affinity key after their last use, because another instance owns
// them now.
func (p *Pool) ReleaseOwner(alike string) {
	key, ours := strings.CutPrefix(alike, apart)
	if !ours && alike != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.slots {
		for _, s := range all {
			if string(s.identity.key) == key {
				defer p.drop(s)
			}
		}
	}
}

// dropProbe drops a connection that only found out the server's era. The caller still calls leave.
func (p *Pool) dropProbe(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users == 1 && p.found(s) {
		p.drop(s)
	}
}
