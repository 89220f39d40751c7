package stdio

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// How a connection finds its era (protocol.md C1).
//
// The caller's own era is tried first, unless the server is known not to speak
// it:
//
//	server/discover --> a revision that we know ------------------> modern
//	   |- an error, or legacy revisions --> initialize -----------> legacy
//	   |- the child ends -----> another child, initialize --------> legacy
//	   |                              `- refused --> server/discover > modern
//	   `- silence --> initialize too; the first answer decides
//	         `- silence ------> another child, as above
//
//	initialize --> a legacy revision -----------------------------> legacy
//	   `- refused --> server/discover ----------------------------> modern
//
// There are legacy servers that end when the first message is not initialize,
// and some that say nothing ever again after a message with _meta: hence the
// other children. But silence is also what a cold start sounds like, and to end
// a child that is being installed begins the half minute anew. So a child that
// has not even read the question is not silent, where the operating system
// tells.
//
// None of this is logged as more than a detail: a server of the other era is
// nothing that its operator has to see to.

// silence is how long a child may take to answer what it has read.
const silence = 5 * time.Second

// slowStart is how long a start may take before that is said.
const slowStart = 5 * time.Second

// Open starts a child and does the handshake with it, or, in the modern era,
// learns from it what it is.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	u, err := a.start(from, rest)
	if err != nil {
		return nil, err
	}
	slow := time.AfterFunc(slowStart, func() { a.o.Log.Info("the server is still starting") })
	defer slow.Stop()
	o := &opening{a: a, ctx: ctx, from: from, rest: rest, u: u}
	switch first, other := a.eras.Order(from); {
	case first == conn.EraLegacy:
		err = o.legacyFirst(other)
	case other:
		err = o.modernFirst()
	default:
		err = o.modern()
	}
	if err == nil {
		if err = o.u.life.Opened(); err == nil {
			return o.u, nil
		}
		err = o.u.unopened(err)
	}
	_ = o.u.Close(context.Background())
	return nil, o.u.quoting(err)
}

// opening is one attempt to open a connection, with as many children as it
// takes to find the era.
type opening struct {
	a    *Adapter
	ctx  context.Context // bounds it
	from *bridge.Caller
	rest bridge.Client
	u    *child // the child that is asked
}

// again ends the child and starts another one in its place. Two at a time might
// be in each other's way.
func (o *opening) again() error {
	_ = o.u.Close(o.ctx)
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	u, err := o.a.start(o.from, o.rest)
	if err == nil {
		o.u = u
	}
	return err
}

// outcome is what came of server/discover or initialize.
type outcome struct {
	server  *bridge.Greeting // nil when it does not speak that era
	verdict conn.Verdict     // of server/discover
	err     error
}

// ended reports whether the child did, rather than answer.
func (c outcome) ended() bool { return errors.Is(c.err, bridge.ErrLost) }

// refused reports whether initialize was answered, but not as a legacy server
// does.
func (c outcome) refused() bool { return errors.Is(c.err, bridge.ErrNoHandshake) }

func (o *opening) discover(ctx context.Context) (c outcome) {
	c.server, c.verdict, c.err = conn.Discover(ctx, o.u.Conn, o.from)
	return c
}

func (o *opening) initialize(ctx context.Context) (c outcome) {
	c.server, c.err = conn.Handshake(ctx, o.u.Conn, o.from, o.a.o.Revision)
	return c
}

// isModern and isLegacy note what the child is.
func (o *opening) isModern(s *bridge.Greeting) error {
	o.u.server = s
	o.a.eras.Learn(conn.EraModern, true)
	return nil
}

func (o *opening) isLegacy(s *bridge.Greeting) error {
	o.u.server = s
	o.a.eras.Learn(conn.EraLegacy, true)
	return nil
}

// modern opens the connection to a server that is spoken to in no other era.
func (o *opening) modern() error {
	d := o.discover(o.ctx)
	switch {
	case d.server != nil:
		return o.isModern(d.server)
	case d.err != nil:
		return o.u.unopened(d.err)
	}
	return o.a.name.Unavailable("it does not speak the modern era of the protocol, and its settings allow no other", nil)
}

// legacyFirst opens the connection by initialize, and if other is set, in the
// modern era when the server refuses.
func (o *opening) legacyFirst(other bool) error {
	i := o.initialize(o.ctx)
	if i.server != nil {
		return o.isLegacy(i.server)
	}
	err := o.u.unopened(i.err)
	// A client of the modern era is here because the server was a legacy one
	// before. It may have become another since.
	if !other || !i.refused() && !(i.ended() && o.from.Modern()) {
		return err
	}
	o.a.eras.Learn(conn.EraLegacy, false)
	o.a.o.Log.Debug("initialize failed: trying server/discover", "err", err)
	d := outcome{err: i.err}
	if i.refused() {
		d = o.probe()
	}
	if d.ended() && o.again() == nil {
		d = o.probe()
	}
	switch {
	case d.server != nil:
		return o.isModern(d.server)
	case d.verdict == conn.SaysOther:
		return d.err
	}
	return err
}

// probe asks the child what it is, and does not wait for one that stays silent.
func (o *opening) probe() outcome {
	ctx, stop := context.WithCancel(o.ctx)
	defer stop()
	discovered := make(chan outcome, 1)
	go func() { discovered <- o.discover(ctx) }() // awaited in any case
	p := o.patience()
	defer p.Stop()
	for {
		select {
		case d := <-discovered:
			return d
		case <-p.C:
			if p.over() {
				stop()
				return <-discovered
			}
		}
	}
}

// patience is the wait for a child to have been silent for too long.
type patience struct {
	*time.Timer
	u    *child
	read bool // the child has read what it was asked
}

func (o *opening) patience() *patience {
	return &patience{Timer: time.NewTimer(o.a.silence / looks), u: o.u}
}

// looks is how often within the time of silence it is looked at whether the
// child reads yet.
const looks = 8

// over reports, when the timer has fired, whether the wait is over. It goes on
// otherwise.
func (p *patience) over() bool {
	switch {
	case p.read:
		return true
	case p.u.starting():
		p.u.a.o.Log.Debug("the child has not read server/discover yet")
		p.Reset(p.u.a.silence / looks)
	default:
		p.read = true
		p.Reset(p.u.a.silence)
	}
	return false
}

// modernFirst opens the connection by server/discover, and if there is no
// modern server, by initialize.
func (o *opening) modernFirst() error {
	d, i, mute := o.contest()
	ended := d.ended() || i.ended()
	switch {
	case d.server != nil:
		return o.isModern(d.server)
	case d.verdict == conn.SaysOther:
		return d.err
	case i.server != nil:
		o.a.eras.Learn(conn.EraModern, false)
		return o.isLegacy(i.server)
	case o.ctx.Err() != nil:
		return context.Cause(o.ctx)
	case i.refused():
		o.a.eras.Learn(conn.EraLegacy, false)
		return i.err
	case !mute && !ended:
		return i.err
	}
	if speaks, _ := o.a.eras.Speaks(conn.EraModern); speaks && ended {
		// The question cannot have been the reason. It can the next time: the
		// server may have become another.
		o.a.eras.Forget(conn.EraModern)
		return o.u.unopened(d.err)
	}
	o.a.o.Log.Debug("no answer to server/discover: trying initialize with another child", "ended", ended)
	if err := o.again(); err != nil {
		return err
	}
	if i = o.initialize(o.ctx); i.refused() { // then it was slow, not silent: there is a modern server that tells so late
		d = o.probe()
	}
	switch {
	case d.server != nil:
		return o.isModern(d.server)
	case d.verdict == conn.SaysOther:
		return d.err
	case i.server == nil:
		return o.u.unopened(i.err)
	}
	o.a.eras.Learn(conn.EraModern, false)
	return o.isLegacy(i.server)
}

// contest asks the child what it is, and when it does not say that it is a
// modern server, or says nothing, greets it by initialize. The first valid
// answer decides: the other is not waited for. mute reports that the child
// stays silent whatever it reads.
func (o *opening) contest() (d, i outcome, mute bool) {
	ctx, stop := context.WithCancel(o.ctx)
	var wg sync.WaitGroup
	discovered, initialized := make(chan outcome, 1), make(chan outcome, 1)
	wg.Go(func() { discovered <- o.discover(ctx) })
	greeted, knows := false, false // initialize is sent; server/discover is answered
	greet := func() {
		greeted = true
		wg.Go(func() { initialized <- o.initialize(ctx) })
	}
	p := o.patience()
	defer p.Stop()
	for over := false; !over; {
		select {
		case d = <-discovered:
			knows = true
			p.Stop()
			switch {
			case d.server != nil, d.verdict == conn.SaysOther, d.ended(), i.refused(), o.ctx.Err() != nil:
				over = true
			case !greeted:
				greet()
			}
		case i = <-initialized:
			if over = !i.refused() || knows; !over {
				p.Reset(o.a.silence) // a modern server refuses, and may say last what it was asked first
			}
		case <-p.C:
			switch {
			case !p.over():
			case !greeted:
				greet()
				p.Reset(o.a.silence)
			default:
				over, mute = true, true
			}
		}
	}
	stop()
	wg.Wait()
	select { // it may have been answered just now
	case d = <-discovered:
	default:
	}
	select {
	case i = <-initialized:
	default:
	}
	return d, i, mute
}
