package peer

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Serve forwards a request for a session to its owner. Serve reports false if the session does not exist, or if this
// instance is the owner; Serve may have just taken the session over. An empty id stands for a new session. here means
// that this instance has the session.
func (p *Peers) Serve(w http.ResponseWriter, r *http.Request, server, id string, here bool, body []byte) bool {
	if here && p.node.Ready() && !(p.node.Draining() && p.givenAway(r.Context(), id, body)) {
		return false
	}
	key := ""
	if id != "" {
		key = session.Key(id)
	}
	if err := p.node.Await(r.Context(), key); err != nil {
		p.unavailable(w, r)
		return true
	}
	path := version + "s/" + nameOf(server) + "/mcp"
	if id == "" {
		if m, ok := p.node.LeastLoaded(); ok && p.node.Draining() && !forwarded(r) {
			return p.forward(m, w, r, path, nil, body) == answered
		}
		return false
	}
	return p.find(w, r, server, id, key, path, body)
}

// patience limits the wait of a request until its session is handed over.
const patience = 2 * time.Second

// givenAway waits up to patience until this stopping instance has handed a session over. Without the wait,
// overlapping calls might keep the session here. givenAway reports whether the session was handed over.
func (p *Peers) givenAway(ctx context.Context, id string, body []byte) bool {
	if ids, _ := requests(body); len(ids) == 0 {
		return false // a call in flight may need the message
	}
	for until := time.Now().Add(patience); p.parts.Sessions.Has(id); {
		if time.Now().After(until) || backoff.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// find answers a request for a session that another instance may own. find reports false if this instance owns the
// session, or if no instance does.
func (p *Peers) find(w http.ResponseWriter, r *http.Request, server, id, key, path string, body []byte) bool {
	hint, _ := p.hint(id, key)
	var perhaps cluster.Member // an instance that may own the session, but could not write it into the store
	patience := time.Now().Add(p.o.Lease + 2*time.Second)
	for tries := 0; ; tries++ {
		if p.node.Holds(key) {
			if p.parts.Sessions.Has(id) {
				return false
			}
			if forwarded(r) || time.Now().After(patience) || backoff.For(r.Context(), 20*time.Millisecond) != nil { // the session is being handed over
				p.unavailable(w, r)
				return true
			}
			continue
		}
		to := hint
		hint = cluster.Member{}
		if to.ID == "" || forwarded(r) {
			l := p.locate(r.Context(), server, id, key, auth.Principal(r.Context()))
			switch {
			case l.taken && r.Context().Err() == nil:
				continue
			case l.taken: // the client is gone
				p.unavailable(w, r)
				return true
			case forwarded(r): // a forwarded request is not forwarded again
				w.WriteHeader(http.StatusMisdirectedRequest)
				return true
			case l.missing && perhaps.ID == "":
				return false
			case l.missing:
				l.at = perhaps
			}
			to = l.at
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
				p.unavailable(w, r)
				return true
			}
		}
	}
}

// hint returns the living instance that probably owns the session.
func (p *Peers) hint(id, key string) (cluster.Member, bool) {
	if at, ok := p.moves.Get(key); ok {
		if m, ok := p.node.Member(at); ok && !m.Left() {
			return m, true
		}
		p.moves.Remove(key)
	}
	return p.node.Tagged(session.Tag(id))
}

// unavailable answers a request that no instance can serve now (S-027).
func (p *Peers) unavailable(w http.ResponseWriter, r *http.Request) {
	p.node.Counts().Refused.Add(1)
	httpio.RetryAfter(w.Header(), 2*time.Second)
	if forwarded(r) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the instance of the bridge that owns the session is unreachable; try again later", []byte(`{"bridge":"unavailable","retryAfterMs":2000}`)).Append(nil, nil, nil))
}

// location is the result of locate. The zero value means that the owner is not known now.
type location struct {
	at      cluster.Member
	taken   bool // this instance took the session over, or another request just tried to
	missing bool // no instance owns the session, or it belongs to another principal
}

// locate reads the owner of a session from the store. If the session has no living owner, locate takes it over, or,
// if this instance stops, returns another instance for it.
func (p *Peers) locate(ctx context.Context, server, id, key, principal string) location {
	p.mu.Lock()
	if busy := p.adopting[key]; busy != nil {
		p.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
		}
		return location{taken: true}
	}
	p.mu.Unlock()
	seen, err := p.node.Find(ctx, key)
	if errors.Is(err, session.ErrNotFound) { // the store may have just lost the session
		if p.node.Beat(ctx) != nil || p.node.Grace() {
			return location{}
		}
		seen, err = p.node.Find(ctx, key)
	}
	switch {
	case errors.Is(err, session.ErrNotFound) && p.node.AnswersUnlisted(ctx, session.Tag(id)): // the owner could not write the session yet
		return location{}
	case errors.Is(err, session.ErrNotFound):
		return location{missing: true}
	case err != nil:
		return location{}
	case seen.Principal != principal || seen.Server != server: // a session of another caller (S-026)
		return location{missing: true}
	}
	if seen.Owner != "" && seen.Owner != p.o.ID {
		dead, err := p.node.Dead(ctx, seen.Owner)
		if err != nil {
			return location{}
		}
		if !dead {
			m, ok := p.node.Member(seen.Owner)
			if !ok {
				_ = p.node.Beat(ctx) // the owner just started
				m, _ = p.node.Member(seen.Owner)
			}
			if m.ID != "" {
				p.moves.Add(key, m.ID)
			}
			return location{at: m}
		}
		p.Disconnect(seen.Owner)
	}
	if p.parts.Gateway.Allowed(server, principal) != nil { // the caller lost its right to the server (S-083)
		return location{missing: true}
	}
	if p.node.Draining() {
		m, _ := p.node.LeastLoaded()
		return location{at: m}
	}
	return p.adopt(ctx, id, seen)
}

// adopt takes a session over. If the session cannot be resumed, adopt deletes it.
func (p *Peers) adopt(ctx context.Context, id string, seen session.Held) location {
	done := make(chan struct{})
	p.mu.Lock()
	if p.adopting[seen.Key] != nil {
		p.mu.Unlock()
		return location{taken: true}
	}
	p.adopting[seen.Key] = done
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.adopting, seen.Key)
		p.mu.Unlock()
		close(done)
	}()
	if p.node.Holds(seen.Key) { // another request just took the session: the store would let the same instance take it twice
		return location{taken: true}
	}
	ctx = context.WithoutCancel(ctx) // the takeover goes on without this client: other requests wait for it
	h, err := p.node.Take(ctx, seen)
	if moved, ok := errors.AsType[*session.Moved](err); ok {
		m, _ := p.node.Member(moved.Owner)
		return location{at: m}
	}
	if errors.Is(err, session.ErrNotFound) {
		return location{taken: true} // find calls locate again
	}
	if err != nil {
		return location{}
	}
	if p.parts.Gateway.Portable(&h.Record) { // a session that is not portable ended with its server (S-034)
		if err = p.parts.Sessions.Adopt(id, h); err == nil {
			p.o.Log.Info("session taken over", "session", h.Key[:8], "from", seen.Owner, "server", h.Server)
			return location{taken: true}
		}
		if errors.Is(err, bridge.ErrShutdown) || errors.Is(err, bridge.ErrOverloaded) { // another instance may have room
			p.o.Log.Debug("session not taken over now", "session", h.Key[:8], "err", err)
			_ = p.node.Release(ctx, h) // if this fails, this instance still owns the session
			return location{}
		}
		p.o.Log.Warn("session not taken over", "session", h.Key[:8], "err", err)
	}
	_ = p.node.Delete(ctx, h) // if this fails, the session expires
	return location{missing: true}
}

// Message forwards a POST of HTTP+SSE to the instance that holds the client's stream. Message reports false for a
// forwarded request, and if no instance holds the stream.
func (p *Peers) Message(w http.ResponseWriter, r *http.Request, server, id string, body []byte) bool {
	if forwarded(r) {
		return false
	}
	tag := session.Tag(id)
	m, ok := p.node.Tagged(tag)
	if !ok && tag != "" {
		if p.node.Beat(r.Context()) != nil {
			p.unavailable(w, r)
			return true
		}
		m, ok = p.node.Tagged(tag)
	}
	if !ok {
		return false // the stream ended with its instance (S-035)
	}
	if p.forward(m, w, r, version+"s/"+nameOf(server)+"/messages", url.Values{"sessionId": {id}}, body) != answered {
		p.unavailable(w, r)
	}
	return true
}
