package streamable

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// answering records the id of a request that the stream answers, if the stream is copied.
func (s *stream) answering(m *jsonrpc.Message) {
	if s.p.d.o.Copies != nil {
		s.open = append(s.open, bytes.Clone(m.ID))
	}
}

// copies starts copying the log for other instances. The caller holds s.mu.
func (s *stream) copies() {
	if c := s.p.d.o.Copies; c != nil && (s.isGet() || s.open != nil) { // not for initialize: its client has no session id yet
		s.log.CopyTo(c.Begin(session.Key(s.p.id), s.id, s.open))
	}
}

// takeWithin bounds how long the store may take to return a copy.
const takeWithin = 2 * time.Second

// takeStream continues a stream of the instance that had the session before, from the stream's copy.
// The requests without an answer are lost, and each gets an error once (S-031). If there is no usable
// copy, takeStream returns nil. The error says that the store is unreachable.
func (p *peer) takeStream(ctx context.Context, name string, seq int64) (*stream, error) {
	c, mark := p.d.o.Copies, p.epoch<<32
	if c == nil || p.epoch == 0 || seq > mark {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, takeWithin)
	defer cancel()
	taken, copied, err := c.Take(ctx, session.Key(p.id), name, seq, mark)
	switch {
	case errors.Is(err, replay.ErrForgotten):
		return nil, nil
	case err != nil:
		return nil, err
	}
	st := newStream(p, name, 0)
	st.log, st.expectsReader = p.d.g.NewLog(p.whose, historyLimits, true), false
	if taken.Finished {
		st.log.Restore(taken.Events, 0)
	} else {
		st.log.Restore(taken.Events, mark)
		st.log.CopyTo(copied)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if there := p.enterTaken(st); there != nil {
		st.log.Close() // another request has continued the stream
		return there, nil
	}
	if !taken.Finished && !st.isGet() {
		for _, id := range taken.Open {
			st.keep(answered{m: gateway.OwnerLost(id)})
		}
	}
	st.finish()
	return st, nil
}

// enterTaken adds a continued stream and returns nil. If the peer already has a stream with the
// same id, it adds nothing and returns that stream. The caller holds s.mu.
func (p *peer) enterTaken(s *stream) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.streams, func(o *stream) bool { return o.id == s.id }); i >= 0 {
		return p.streams[i]
	}
	s.dropped = p.over
	p.streams = append(p.streams, s)
	return nil
}
