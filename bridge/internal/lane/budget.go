package lane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Shares bound how many of some places one principal may have.
type Shares interface {
	// Enter takes n places. It reports false when that would be more than it may.
	Enter(principal string, n int64) bool
	Leave(principal string, n int64)
	Most() int64
	// Refusal says that a principal has all that it may have at that server.
	Refusal(server string) error
}

// Limits that have no setting, so that nobody can take what others need (protocol.md
// F).
const (
	maxOpenings = 4  // connections to one server opened at once; a slow server must not hold up the others
	maxStarts   = 16 // connections to all servers that begin to be opened within startMoment
	startMoment = time.Second
)

// Total bounds the connections to all servers together.
type Total struct {
	most   int64
	open   atomic.Int64
	shares Shares
	starts chan struct{} // one token for each connection that begins to be opened
}

// NewTotal makes the bound of most connections.
func NewTotal(most int, shares Shares) *Total {
	return &Total{most: int64(most), shares: shares, starts: make(chan struct{}, maxStarts)}
}

// Open returns how many connections are open or being opened, with the processes that were
// started ahead.
func (t *Total) Open() int64 { return t.open.Load() }

// Most returns how many there may be.
func (t *Total) Most() int64 { return t.most }

// Budget bounds the connections to one server, as a part of those to all.
type Budget struct {
	server   string
	most     atomic.Int64
	open     atomic.Int64
	shares   Shares
	total    *Total
	spare    func(principal string, own bool) bool
	openings chan struct{} // one token for each connection that is being opened
	leaving  leaving
	early    atomic.Bool // a process that was started ahead has a place
}

// NewBudget makes the bound of most connections to a server. spare is called where
// there is no room for one more: it has one closed that nobody uses, with own only
// one of the principal's, or reports false.
func NewBudget(server string, most int, shares Shares, total *Total, spare func(principal string, own bool) bool) *Budget {
	b := &Budget{server: server, shares: shares, total: total, spare: spare, openings: make(chan struct{}, maxOpenings)}
	b.Set(most)
	return b
}

// Set has so many connections be the most from now on. Those that are open stay.
func (b *Budget) Set(most int) { b.most.Store(int64(most)) }

// Open returns how many connections are open or being opened. A process that was started
// ahead is none yet.
func (b *Budget) Open() int64 {
	if b.early.Load() {
		return max(b.open.Load()-1, 0)
	}
	return b.open.Load()
}

// Most returns how many there may be.
func (b *Budget) Most() int64 { return b.most.Load() }

// Opening reports whether a connection is being opened.
func (b *Budget) Opening() bool { return len(b.openings) > 0 }

// Leaving says that a connection is about to be closed, until left is called: who
// finds no room waits for that.
func (b *Budget) Leaving() (left func()) { return b.leaving.begin() }

// ahead takes a place for a process that is started before anybody connects, which the
// next connection takes over. It reports false where places are few: others may need
// them.
func (b *Budget) ahead() bool {
	server, all := b.open.Add(1), b.total.open.Add(1)
	b.early.Store(true)
	if server > b.Most() || 2*all > b.total.most {
		b.cede()
		return false
	}
	return true
}

// cede gives up the place of a process that was started ahead, if it has one.
func (b *Budget) cede() {
	if b.early.CompareAndSwap(true, false) {
		b.total.open.Add(-1)
		b.open.Add(-1)
	}
}

// admit takes a place for one more connection of a principal's, and the right to
// open it until done is called; bounded says that the adapter bounds how many are being
// opened. Every success needs a release too, when the connection has ended or was not
// opened.
func (b *Budget) admit(ctx context.Context, principal string, bounded bool) (done func(), err error) {
	b.cede()
	for {
		left := b.leaving.next()
		own := !b.shares.Enter(principal, 1) // it is about what the principal has itself
		if !own {
			if b.open.Add(1) <= b.Most() {
				break
			}
			b.open.Add(-1)
			b.shares.Leave(principal, 1)
		}
		if left == nil && b.spare(principal, own) {
			continue
		}
		if left == nil && own {
			return nil, b.shares.Refusal(b.server)
		}
		if left == nil {
			return nil, b.full("it has too many connections: see max_children of the server", b.Most())
		}
		select { // a place that was given up is about to be free
		case <-left:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	full, own := b.total.open.Add(1) > b.total.most, !b.total.shares.Enter(principal, 1)
	if own {
		b.leave(principal)
		return nil, b.full("one caller has too many connections to all servers: three quarters of max_children, where there are others", b.total.shares.Most())
	}
	if full {
		b.release(principal)
		return nil, b.full("the bridge has too many connections: see max_children", b.total.most)
	}
	if bounded {
		return func() {}, nil
	}
	select {
	case b.openings <- struct{}{}:
	case <-ctx.Done():
		b.release(principal)
		return nil, context.Cause(ctx)
	}
	begun, err := b.total.start(ctx)
	if err != nil {
		<-b.openings
		b.release(principal)
		return nil, err
	}
	return func() {
		begun()
		<-b.openings
	}, nil
}

// full is the error of a connection for which there is no room.
func (b *Budget) full(what string, most int64) error {
	return &bridge.Error{Server: b.server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded, Public: bridge.OverLimit(what, int(most))}
}

// release gives back the place of a connection of a principal's.
func (b *Budget) release(principal string) {
	b.total.shares.Leave(principal, 1)
	b.leave(principal)
}

// leave is release, of one that has no share of the connections to all servers.
func (b *Budget) leave(principal string) {
	b.shares.Leave(principal, 1)
	b.total.open.Add(-1) // first: who finds a place at the server counts on the one that it had here
	b.open.Add(-1)
}

// start takes the right to begin opening one more connection. It is given back
// when the connection is open, and after a moment in any case: many servers
// that start at once do not overwhelm the machine, and those that are slow do
// not keep the others waiting.
func (t *Total) start(ctx context.Context) (begun func(), err error) {
	select {
	case t.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var once sync.Once
	free := func() { once.Do(func() { <-t.starts }) }
	moment := time.AfterFunc(startMoment, free)
	return func() {
		moment.Stop()
		free()
	}, nil
}

// leaving tells who waits for a place when a connection that is being closed has
// left its own.
type leaving struct {
	mu   sync.Mutex // guards the rest
	n    int
	left chan struct{} // closed with the next that has left
}

// begin counts a connection whose closing begins, until done is called.
func (l *leaving) begin() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; l.left == nil {
		l.left = make(chan struct{})
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n--
		close(l.left)
		if l.left = nil; l.n > 0 {
			l.left = make(chan struct{})
		}
	}
}

// next returns what is closed when the next one has left; nil when none is about
// to.
func (l *leaving) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}
