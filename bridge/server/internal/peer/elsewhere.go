package peer

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Serve answers a request for a session at the instance that has it. It reports false
// when that is this one, also from now on, or when nobody has it. An empty id stands for
// a session that is about to begin.
func (p *Peers) Serve(w http.ResponseWriter, r *http.Request, server, id string, here bool, body []byte) bool {
	if here && p.node.Ready() && !(p.node.Draining() && p.away(r.Context(), id, body)) {
		return false
	}
	key := ""
	if id != "" {
		key = session.Key(id)
	}
	if err := p.node.Await(r.Context(), key); err != nil {
		p.turnAway(w, r)
		return true
	}
	path := version + "s/" + nameOf(server) + "/mcp"
	if id == "" {
		if m, ok := p.node.Least(); ok && p.node.Draining() && !forwarded(r) {
			return p.forward(m, w, r, path, nil, body) == answered
		}
		return false
	}
	return p.find(w, r, server, id, key, path, body)
}

// patience is how long a request waits for its session to be given away.
const patience = 2 * time.Second

// away waits a moment until this instance, which is about to stop, has given a session
// away: while new calls begin, it may never be without any. It reports whether it has.
func (p *Peers) away(ctx context.Context, id string, body []byte) bool {
	if ids, _ := requests(body); len(ids) == 0 {
		return false // a call under way may need it
	}
	for until := time.Now().Add(patience); p.o.Has(id); {
		if time.Now().After(until) || backoff.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// find answers a request for a session that another instance may have.
func (p *Peers) find(w http.ResponseWriter, r *http.Request, server, id, key, path string, body []byte) bool {
	hint, _ := p.hint(id, key)
	var perhaps cluster.Member // has it, and could not write it into the store
	patience := time.Now().Add(p.o.Lease + 2*time.Second)
	for tries := 0; ; tries++ {
		if p.node.Holds(key) {
			if p.o.Has(id) {
				return false
			}
			if forwarded(r) || time.Now().After(patience) { // it is being given away
				p.turnAway(w, r)
				return true
			}
			_ = backoff.For(r.Context(), 20*time.Millisecond)
			continue
		}
		to := hint
		hint = cluster.Member{}
		if to.ID == "" || forwarded(r) {
			v := p.locate(r.Context(), server, id, key, auth.Principal(r.Context()))
			switch {
			case v.taken:
				continue
			case forwarded(r): // it never goes further
				w.WriteHeader(http.StatusMisdirectedRequest)
				return true
			case v.missing && perhaps.ID == "":
				return false
			case v.missing:
				v.at = perhaps
			}
			to = v.at
		}
		if to.ID != "" {
			switch p.forward(to, w, r, path, nil, body) {
			case answered:
				return true
			case unsure:
				perhaps = to
				p.moves.Remove(key)
			case refused:
				perhaps = cluster.Member{}
				p.moves.Remove(key)
			}
		}
		if tries > 0 || to.ID == "" {
			if time.Now().After(patience) || backoff.For(r.Context(), 200*time.Millisecond) != nil {
				p.turnAway(w, r)
				return true
			}
		}
	}
}

// hint returns the living instance that probably has the session.
func (p *Peers) hint(id, key string) (cluster.Member, bool) {
	if at, ok := p.moves.Get(key); ok {
		if m, ok := p.node.Member(at); ok && !m.Left() {
			return m, true
		}
		p.moves.Remove(key)
	}
	return p.node.Tagged(session.Tag(id))
}

// turnAway answers a request that nobody can serve for now (S-027).
func (p *Peers) turnAway(w http.ResponseWriter, r *http.Request) {
	p.node.Counts().Refused.Add(1)
	httpio.RetryAfter(w.Header(), 2*time.Second)
	if forwarded(r) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the instance of the bridge that has the session is out of reach; try again later", []byte(`{"bridge":"unavailable","retryAfterMs":2000}`)).Append(nil, nil, nil))
}

// found says where a session is. Nothing of it means that this is not known now.
type found struct {
	at      cluster.Member
	taken   bool // it is here by now, or somebody has just tried
	missing bool // nobody has it, or not for this principal
}

// locate asks the store where a session is, and takes it over if its owner is dead.
func (p *Peers) locate(ctx context.Context, server, id, key, principal string) found {
	p.mu.Lock()
	if busy := p.adopting[key]; busy != nil {
		p.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
		}
		return found{taken: true}
	}
	p.mu.Unlock()
	seen, err := p.node.Find(ctx, key)
	if errors.Is(err, session.ErrNotFound) { // unless the store has just lost it
		if p.node.Beat(ctx) != nil || p.node.Grace() {
			return found{}
		}
		seen, err = p.node.Find(ctx, key)
	}
	switch {
	case errors.Is(err, session.ErrNotFound) && p.node.Hidden(ctx, session.Tag(id)): // it could not write it, or not yet
		return found{}
	case errors.Is(err, session.ErrNotFound):
		return found{missing: true}
	case err != nil:
		return found{}
	case seen.Principal != principal || seen.Server != server: // nothing is taken (S-026)
		return found{missing: true}
	}
	if seen.Owner != "" && seen.Owner != p.o.ID {
		dead, err := p.node.Dead(ctx, seen.Owner)
		if err != nil {
			return found{}
		}
		if !dead {
			m, ok := p.node.Member(seen.Owner)
			if !ok {
				_ = p.node.Beat(ctx) // it is new
				m, _ = p.node.Member(seen.Owner)
			}
			if m.ID != "" {
				p.moves.Add(key, m.ID)
			}
			return found{at: m}
		}
		p.Bury(seen.Owner)
	}
	if p.o.Allowed(server, principal) != nil { // (S-083)
		return found{missing: true}
	}
	if p.node.Draining() {
		m, _ := p.node.Least()
		return found{at: m}
	}
	return p.adopt(ctx, id, seen)
}

// adopt takes a session over.
func (p *Peers) adopt(ctx context.Context, id string, seen session.Held) found {
	done := make(chan struct{})
	p.mu.Lock()
	if p.adopting[seen.Key] != nil {
		p.mu.Unlock()
		return found{taken: true}
	}
	p.adopting[seen.Key] = done
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.adopting, seen.Key)
		p.mu.Unlock()
		close(done)
	}()
	if p.node.Holds(seen.Key) { // somebody has just taken it over, since it was seen: the store would say so of the same twice
		return found{taken: true}
	}
	ctx = context.WithoutCancel(ctx) // its client may go: others wait for it
	h, err := p.node.Take(ctx, seen)
	if moved, ok := errors.AsType[*session.Moved](err); ok {
		m, _ := p.node.Member(moved.Owner)
		return found{at: m}
	}
	if errors.Is(err, session.ErrNotFound) {
		return found{taken: true} // looked for again
	}
	if err != nil {
		return found{}
	}
	if p.o.Portable(&h.Record) { // otherwise its end was its server's (S-034)
		if err = p.o.Adopt(id, h); err == nil {
			p.o.Log.Info("a session was taken over", "session", h.Key[:8], "from", seen.Owner, "server", h.Server)
			return found{taken: true}
		}
		p.o.Log.Warn("a session could not be taken over", "session", h.Key[:8], "err", err)
	}
	_ = p.node.Delete(ctx, h) // it expires otherwise
	return found{missing: true}
}

// Message answers a POST of HTTP+SSE at the instance that holds the client's stream.
func (p *Peers) Message(w http.ResponseWriter, r *http.Request, server, id string, body []byte) bool {
	if forwarded(r) {
		return false
	}
	tag := session.Tag(id)
	m, ok := p.node.Tagged(tag)
	if !ok && tag != "" {
		if p.node.Beat(r.Context()) != nil {
			p.turnAway(w, r)
			return true
		}
		m, ok = p.node.Tagged(tag)
	}
	if !ok {
		return false // with its instance, the stream has ended (S-035)
	}
	if p.forward(m, w, r, version+"s/"+nameOf(server)+"/messages", url.Values{"sessionId": {id}}, body) != answered {
		p.turnAway(w, r)
	}
	return true
}
