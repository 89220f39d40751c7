package gateway

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Done returns a channel that is closed when the session has begun to end.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// OnEnd has f called when the session ends, at once if it has ended.
func (s *Session) OnEnd(f func()) {
	s.mu.Lock()
	if !s.ending {
		s.onEnd = append(s.onEnd, f)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	f()
}

// Go runs f in a goroutine that the end of the session waits for. It reports
// false when the session, or the gateway, has ended.
func (s *Session) Go(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.wg.Add(1)
	ok := s.b.workers.Run(func() {
		defer s.wg.Done()
		f()
	})
	if !ok {
		s.wg.Done()
	}
	return ok
}

// Seen notes that the client showed a sign of life.
func (s *Session) Seen() {
	s.left.Store(false)
	s.rest()
}

// rest begins the time anew for which nobody uses the session.
func (s *Session) rest() { s.seen.Store(time.Now().UnixNano()) }

// idleFor returns how long nobody has used the session: an open stream or a
// call under way is use.
func (s *Session) idleFor(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callCount > 0 || len(s.streams) > 0 {
		return 0
	}
	return now.Sub(time.Unix(0, s.seen.Load()))
}

// unusedTTL is how long a session is kept whose client never came back after
// initialize: its answer was probably lost, and with it the session's id.
const unusedTTL = 5 * time.Minute

// patience returns how long the session may be idle; left is for one whose client has
// probably gone without a word, as most do: it has closed its stream, and sent nothing since.
// Only if a process waits for it, there is a hurry.
func (s *Session) patience(idle, left time.Duration) time.Duration {
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

// hasProcess reports whether a process may run for this session alone.
func (s *Session) hasProcess() bool {
	own := func(at *server) bool { return at.o.Process && at.share == ShareSession }
	if at := s.ways.Now().At; at != nil {
		return own(at)
	}
	return slices.ContainsFunc(s.b.table.Load().servers, own)
}

// End ends the session and returns at once; err says why. What belongs to it
// ends in the background.
func (s *Session) End(err error) {
	if !s.finish(err) {
		return
	}
	s.b.wg.Go(func() { s.wind(s.b.force) })
}

// close ends the session and waits until nothing is left of it.
func (s *Session) close(ctx context.Context, err error) {
	if s.finish(err) {
		s.wind(ctx)
		return
	}
	<-s.ended // whoever has begun to end it heeds b.force, which ends with ctx
}

// finish marks the session as ending. Only the first call does something; it
// reports whether it was.
func (s *Session) finish(err error) bool {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return false
	}
	s.ending = true
	onEnd := s.onEnd
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
		q.reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client has gone", nil))
	}
	level := slog.LevelDebug
	if s.greeted.Load() {
		level = slog.LevelInfo
	}
	s.log.Log(context.Background(), level, "session ended", append(s.who(), "reason", err)...)
	for _, f := range onEnd {
		f()
	}
	return true
}

// wind closes what belongs to the session. Its connection is closed even when
// calls that wait for it have not returned yet.
func (s *Session) wind(ctx context.Context) {
	s.ways.Close(ctx)
	s.wg.Wait()
	s.unkeep()
	s.b.mu.Lock()
	_, enrolled := s.b.sessions[s]
	delete(s.b.sessions, s)
	s.b.mu.Unlock()
	if enrolled {
		s.b.quota.Depart(s.caller)
	}
	close(s.ended)
	s.ways.Over()
}
