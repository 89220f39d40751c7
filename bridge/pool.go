package bridge

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// pool is an Upstream for the clients without sessions of one server: it finds
// the connection that a request goes over, and talks to the server in the era
// that it speaks (protocol.md D1.2, D4).
type pool struct {
	r *route

	mu     sync.Mutex // guards the rest
	lowers map[string]*lower
	closed bool
}

func newPool(r *route) *pool { return &pool{r: r, lowers: map[string]*lower{}} }

// Server returns nothing: what clients are told is made for each of them.
func (p *pool) Server() *Server { return nil }

// Notify drops the notification: clients without sessions have none that are
// defined.
func (p *pool) Notify(context.Context, *Request) error { return nil }

// Call makes the call of a client without a session.
func (p *pool) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	if no := p.misheaded(r); no != nil {
		return no, nil
	}
	l, err := p.lower(r)
	if err != nil {
		return nil, err
	}
	defer p.leave(l)
	s, err := l.lane.known(ctx)
	if err != nil {
		return nil, err
	}
	if s.Modern() {
		return relay(ctx, &mirrored{l.lane, p.r}, r)
	}
	return l.Call(ctx, r)
}

// misheaded answers a call whose headers do not say what its arguments do
// as far as the tool is known.
func (p *pool) misheaded(r *Request) *jsonrpc.Message {
	if r.Mirror == nil || r.Method != "tools/call" {
		return nil
	}
	m, known := p.r.catalog(r.From.Principal).mirror(r.Name())
	if !known || m == nil {
		return nil
	}
	if what := m.Check(r.Mirror, []byte(gjson.GetBytes(r.Params, "arguments").Raw)); what != "" {
		return jsonrpc.NewError(nil, jsonrpc.CodeHeaderMismatch, what, nil)
	}
	return nil
}

// lower returns the connection for a request, and counts it as in use until
// leave.
func (p *pool) lower(r *Request) (*lower, error) {
	from := p.r.caller(r.From)
	key := from.Principal
	for _, f := range p.r.o.Forward {
		for _, value := range from.Header[f.To] {
			key += "\x00" + f.To + ":" + value
		}
	}
	key += "\x00" + string(era.CanonicalCapabilities(era.LegacyCapabilities(from.Capabilities)))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrShutdown
	}
	l := p.lowers[key]
	if l == nil {
		l = newLower(p, key, from)
		p.lowers[key] = l
	}
	return l, nil
}

func (p *pool) leave(*lower) {}

// Close ends all connections.
func (p *pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	lowers := p.lowers
	p.lowers = nil
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range lowers {
		wg.Go(func() { l.close(ctx) })
	}
	wg.Wait()
	return nil
}

// known returns what the server's last handshake said. Before the first one it
// opens the connection.
func (l *lane) known(ctx context.Context) (*Server, error) {
	if s := l.Server(); s != nil {
		return s, nil
	}
	w, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return w.up.Server(), nil
}

// relay makes the call of a client without a session to a server of its own
// era: it goes as it is (protocol.md D4).
func relay(ctx context.Context, up Upstream, r *Request) (*jsonrpc.Message, error) {
	a, err := up.Call(ctx, r)
	if err != nil || a.Error != nil {
		return a, err
	}
	switch {
	case r.Method == "server/discover":
		return rediscovered(a), nil
	case a.Found().Type.End == 0:
		a.Edit(first(a.Result, `"resultType":"complete"`))
	}
	return a, nil
}

// first is the edit that puts members before the others of an object.
func first(object []byte, members string) jsonrpc.Edit {
	at := slices.Index(object, '{') + 1
	if rest := object[at:]; rest[firstByte(rest)] != '}' {
		members += ","
	}
	return jsonrpc.Edit{From: at, To: at, Text: []byte(members)}
}

func firstByte(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return i
		}
	}
	return 0
}

// rediscovered returns the answer to server/discover with the revisions that
// the bridge serves in place of the server's own (protocol.md D4, C4).
func rediscovered(a *jsonrpc.Message) *jsonrpc.Message {
	versions := `["` + strings.Join(era.Supported(), `","`) + `"]`
	b := a.WithResult(put(a.Result, "supportedVersions", []byte(versions)))
	b.ID = slices.Clone(a.ID)
	a.Release()
	return b
}
