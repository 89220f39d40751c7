package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func (s *sitting) Done() <-chan struct{} { return s.ctx.Done() }

func (s *sitting) OnEnd(f func()) {
	s.mu.Lock()
	if !s.ending {
		s.onEnd = append(s.onEnd, f)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	f()
}

func (s *sitting) Go(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.wg.Add(1)
	ok := s.g.workers.Run(func() {
		defer s.wg.Done()
		f()
	})
	if !ok {
		s.wg.Done()
	}
	return ok
}

func (s *sitting) Seen() {
	s.left.Store(false)
	s.touch()
}

// touch restarts the session's idle time. Unlike Seen, it is no sign of life of the client.
func (s *sitting) touch() { s.seen.Store(time.Now().UnixNano()) }

// idleFor returns how long the session has been idle at now. A session with a stream or a call in flight is not idle.
func (s *sitting) idleFor(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callCount > 0 || len(s.streams) > 0 {
		return 0
	}
	return now.Sub(time.Unix(0, s.seen.Load()))
}

// unusedTTL is the idle limit of a session whose client sent nothing after initialize. The client probably lost the
// answer, and with it the id of the session.
const unusedTTL = 5 * time.Minute

// idleLimit returns how long the session may be idle, at most idle. left applies instead, if it is shorter, to a
// session with a process of its own whose client closed its last stream and sent nothing since. Such a client probably
// left without DELETE.
func (s *sitting) idleLimit(idle, left time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.used:
		return min(idle, unusedTTL)
	case s.left.Load() && s.hasProcess():
		return min(idle, left)
	}
	return idle
}

// hasProcess reports whether the session may have a process of its own.
func (s *sitting) hasProcess() bool {
	own := func(at *server) bool { return at.o.Process && at.share == ShareSession }
	if at := s.bindings.Current().Server; at != nil {
		return own(at)
	}
	return slices.ContainsFunc(s.g.table.Load().servers, own)
}

func (s *sitting) End(err error) {
	if !s.finish(err) {
		return
	}
	s.g.wg.Go(func() { s.release(s.g.force) })
}

// close ends the session with err and returns when the session is released.
func (s *sitting) close(ctx context.Context, err error) {
	if s.finish(err) {
		s.release(ctx)
		return
	}
	<-s.ended // the first caller releases it under g.force, which ends with ctx
}

// finish marks the session as ending, and reports whether this call was the first. Only the first has an effect.
func (s *sitting) finish(err error) bool {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return false
	}
	s.ending = true
	onEnd, used := s.onEnd, s.used
	questions, pending := s.questions, s.pending
	s.questions, s.onEnd, s.pending = nil, nil, nil
	s.mu.Unlock()
	s.changes.End(false)
	if pending != nil {
		pending.Close()
	}
	s.cancel(err)
	for _, q := range questions {
		q.timer.Stop()
		q.reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client's session ended", nil))
	}
	level := slog.LevelDebug
	if s.greeted.Load() {
		level = slog.LevelInfo
	}
	s.log.Log(context.Background(), level, "session ended", append(s.who(), "reason", err)...)
	if s.g.sessionEnded != nil && (used || s.greeted.Load()) && !errors.Is(err, ErrMoved) {
		network := bridge.TCP
		if s.wire == WireStdio {
			network = bridge.Pipe
		}
		s.g.sessionEnded(report.Session{
			Server:   s.server,
			Revision: s.caller.Revision,
			Address:  bridge.Address{Network: network},
			Took:     time.Since(s.began),
			Err:      err,
		})
	}
	for _, f := range onEnd {
		f()
	}
	return true
}

// release closes the session's connection, awaits its goroutines, and removes the session. The connection closes first,
// so that calls in flight return.
func (s *sitting) release(ctx context.Context) {
	s.bindings.Close(ctx)
	s.wg.Wait()
	s.forget()
	s.g.mu.Lock()
	_, enrolled := s.g.sessions[s]
	delete(s.g.sessions, s)
	s.g.mu.Unlock()
	if enrolled {
		s.g.quota.RemoveSession(s.caller)
	}
	close(s.ended)
	s.bindings.Released()
}
