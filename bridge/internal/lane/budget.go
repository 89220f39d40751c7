package lane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Shares bounds how many of some slots one principal may hold.
type Shares interface {
	// Take takes n slots, or reports false if the principal's share has too few.
	Take(principal string, n int64) bool
	Return(principal string, n int64)
	Most() int64
	// Refusal returns the error of a principal whose share at the server is full.
	Refusal(server string) error
}

// These limits have no setting. They bound the connections that are opened at once, because other clients need
// openings too (protocol.md F).
const (
	maxOpenings = 4  // connections to one server that are opened at once; a slow server must not delay others
	maxStarts   = 16 // connections to all servers whose opening starts within startMoment
	startMoment = time.Second
)

// Total bounds the connections to all servers together.
type Total struct {
	most   int64
	open   atomic.Int64
	shares Shares
	starts chan struct{} // one token for each connection whose opening starts
}

// NewTotal returns a Total of most connections.
func NewTotal(most int, shares Shares) *Total {
	return &Total{
		most:   int64(most),
		shares: shares,
		starts: make(chan struct{}, maxStarts),
	}
}

// Open returns the number of connections that are open or opening, and of processes that were started ahead.
func (t *Total) Open() int64 { return t.open.Load() }

func (t *Total) Most() int64 { return t.most }

// Budget bounds the connections to one server, as a part of a Total.
type Budget struct {
	server    string
	most      atomic.Int64
	open      atomic.Int64
	shares    Shares
	total     *Total
	spare     Spare
	openings  chan struct{} // one token for each connection that is opening
	closings  closings
	aheadHeld atomic.Bool // a process that was started ahead has a slot
}

// Spare makes room for another connection.
type Spare interface {
	// Yield starts to close an unused connection, or reports false. With own, only a connection of the principal
	// counts.
	Yield(principal string, own bool) bool
}

// NewBudget returns a Budget of most connections to a server. If no slot is left, the Budget asks spare to free one;
// spare may be nil.
func NewBudget(server string, most int, shares Shares, total *Total, spare Spare) *Budget {
	b := &Budget{
		server:   server,
		shares:   shares,
		total:    total,
		spare:    spare,
		openings: make(chan struct{}, maxOpenings),
	}
	b.Set(most)
	return b
}

// Set changes the limit. Open connections stay.
func (b *Budget) Set(most int) { b.most.Store(int64(most)) }

// Open returns the number of connections that are open or opening. A process that was started ahead does not
// count.
func (b *Budget) Open() int64 {
	if b.aheadHeld.Load() {
		return max(b.open.Load()-1, 0)
	}
	return b.open.Load()
}

func (b *Budget) Most() int64 { return b.most.Load() }

// Opening reports whether a connection is opening.
func (b *Budget) Opening() bool { return len(b.openings) > 0 }

// Closing counts a connection that is closing, until closed is called. Meanwhile an opening that finds no slot waits
// for the slot of that connection.
func (b *Budget) Closing() (closed func()) { return b.closings.begin() }

// reserveAhead takes a slot for a process that starts before any client connects. The next connection takes the slot
// over. reserveAhead reports false if the server has no free slot, or if more than half of the slots of the Total
// would be taken.
func (b *Budget) reserveAhead() bool {
	b.aheadHeld.Store(true) // first, so that admit can cede the slot as soon as the slot counts
	server, all := b.open.Add(1), b.total.open.Add(1)
	if server > b.Most() || 2*all > b.total.most {
		b.cede()
		return false
	}
	return true
}

// cede releases the slot of a process that was started ahead. It reports false if there is none.
func (b *Budget) cede() bool {
	if !b.aheadHeld.CompareAndSwap(true, false) {
		return false
	}
	b.total.open.Add(-1)
	b.open.Add(-1)
	return true
}

// admit takes a slot for one more connection of the principal. If a connection is closing or too many are opening,
// admit waits for them. The connection counts as opening until done is called. bounded means that the adapter limits
// concurrent openings itself. After a success, the caller calls release once the connection has ended, or was not
// opened.
func (b *Budget) admit(ctx context.Context, principal string, bounded bool) (done func(), err error) {
	b.cede()
	for {
		next := b.closings.upcoming()
		own := !b.shares.Take(principal, 1) // the principal's own share is full
		if !own {
			if b.open.Add(1) <= b.Most() {
				break
			}
			b.open.Add(-1)
			b.shares.Return(principal, 1)
			if b.cede() { // the slot was taken just now
				continue
			}
		}
		if next == nil && b.spare != nil && b.spare.Yield(principal, own) {
			continue
		}
		if next == nil && own {
			return nil, b.shares.Refusal(b.server)
		}
		if next == nil {
			return nil, b.full("it has too many connections: see max_children of the server", b.Most())
		}
		select { // a slot is about to become free
		case <-next:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	full, own := b.total.open.Add(1) > b.total.most, !b.total.shares.Take(principal, 1)
	if own {
		b.leave(principal)
		return nil, b.full("one caller has too many connections to all servers: it may have three quarters of max_children", b.total.shares.Most())
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

// full returns the error of a connection without a slot.
func (b *Budget) full(what string, most int64) error {
	return &bridge.Error{
		Server: b.server,
		Kind:   bridge.ErrUnavailable,
		Err:    bridge.ErrOverloaded,
		Public: bridge.OverLimit(what, int(most)),
	}
}

// release frees the slot of a principal's connection.
func (b *Budget) release(principal string) {
	b.total.shares.Return(principal, 1)
	b.leave(principal)
}

// leave frees the slot of a connection that holds none of the principal's share of the Total.
func (b *Budget) leave(principal string) {
	b.shares.Return(principal, 1)
	b.total.open.Add(-1) // first: a caller that finds a slot at the server relies on a slot in the total
	b.open.Add(-1)
}

// start waits until fewer than maxStarts connections are starting. A connection counts until begun is called, and at
// most for startMoment. So many servers that start at once do not overload the machine, and slow servers do not delay
// the others.
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

// closings wakes the goroutines that wait for a slot when a connection has closed.
type closings struct {
	mu   sync.Mutex // guards the rest
	n    int
	next chan struct{} // closed when the next connection has closed
}

// begin counts a connection that is closing, until done is called.
func (c *closings) begin() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.next == nil {
		c.next = make(chan struct{})
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n--
		close(c.next)
		if c.next = nil; c.n > 0 {
			c.next = make(chan struct{})
		}
	}
}

// upcoming returns a channel that is closed when the next connection has closed; nil if none is closing.
func (c *closings) upcoming() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}
