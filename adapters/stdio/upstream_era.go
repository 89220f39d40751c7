package stdio

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// How a connection detects the era of its server (protocol.md C1).
//
// Open first tries the caller's own era, unless the server is known not to speak that era:
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
// Another child is needed for two reasons. Some legacy servers exit if the first message is not
// initialize. Others never answer again after a message with _meta. But a server is also silent while
// it is being installed, and another child would begin that half minute anew. So a child that has not
// even read the request does not count as silent, if the operating system shows that.
//
// All of this is logged at level debug, since an operator has nothing to do about a server of the
// other era.

// silence is how long a child may take to answer after it has read the request. Then it counts as
// silent.
const silence = 5 * time.Second

// slowStart is the time after which Open logs that a start is slow.
const slowStart = 5 * time.Second

// Open implements bridge.Adapter. It starts a child, and then sends initialize, or in the modern era
// server/discover.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	c, err := a.start(from, rest)
	if err != nil {
		return nil, err
	}
	slow := time.AfterFunc(slowStart, func() { a.o.Log.Info("the server is still starting") })
	defer slow.Stop()
	o := &opening{
		a:    a,
		ctx:  ctx,
		from: from,
		rest: rest,
		u:    c,
	}
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
	return nil, o.u.withStderr(err)
}

// opening is one attempt to open a connection. To find the era, it may start several children.
type opening struct {
	a    *Adapter
	ctx  context.Context // bounds the attempt
	from *bridge.Caller
	rest bridge.Client
	u    *child // the current child
}

// again stops the child, and then starts another. Two children at a time might disturb each other.
func (o *opening) again() error {
	_ = o.u.Close(o.ctx)
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	c, err := o.a.start(o.from, o.rest)
	if err == nil {
		o.u = c
	}
	return err
}

// outcome is the result of server/discover or initialize.
type outcome struct {
	server  *bridge.Greeting // nil if the server does not speak that era
	verdict conn.Verdict     // of server/discover
	err     error
}

// ended reports whether the child ended instead of answering.
func (o outcome) ended() bool { return errors.Is(o.err, bridge.ErrLost) }

// refused reports whether the child answered initialize, but not as a legacy server does.
func (o outcome) refused() bool { return errors.Is(o.err, bridge.ErrNoHandshake) }

func (o *opening) discover(ctx context.Context) (c outcome) {
	c.server, c.verdict, c.err = conn.Discover(ctx, o.u.Conn, o.from)
	return c
}

func (o *opening) initialize(ctx context.Context) (c outcome) {
	c.server, c.err = conn.Handshake(ctx, o.u.Conn, o.from, o.a.o.Revision)
	return c
}

// isModern records that the server is a modern one, with that greeting. It returns nil.
func (o *opening) isModern(g *bridge.Greeting) error {
	o.u.server = g
	o.a.eras.Learn(conn.EraModern, true)
	return nil
}

// isLegacy records that the server is a legacy one, with that greeting. It returns nil.
func (o *opening) isLegacy(g *bridge.Greeting) error {
	o.u.server = g
	o.a.eras.Learn(conn.EraLegacy, true)
	return nil
}

// modern opens the connection by server/discover only.
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

// legacyFirst opens the connection by initialize. If the server refuses and other is set, it tries
// the modern era.
func (o *opening) legacyFirst(other bool) error {
	i := o.initialize(o.ctx)
	if i.server != nil {
		return o.isLegacy(i.server)
	}
	err := o.u.unopened(i.err)
	// For a client of the modern era, the server was a legacy one before, and may have changed since.
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

// probe sends server/discover, and gives up on a silent child.
func (o *opening) probe() outcome {
	ctx, stop := context.WithCancel(o.ctx)
	defer stop()
	discovered := make(chan outcome, 1)
	go func() { discovered <- o.discover(ctx) }() // this function always receives from discovered before it returns
	s := o.awaitSilence()
	defer s.Stop()
	for {
		select {
		case o := <-discovered:
			return o
		case <-s.C:
			if s.over() {
				stop()
				return <-discovered
			}
		}
	}
}

// silenceTimer fires while a child does not answer, so that over can check the child.
type silenceTimer struct {
	*time.Timer
	u    *child
	read bool // the child has read the request
}

func (o *opening) awaitSilence() *silenceTimer {
	return &silenceTimer{Timer: time.NewTimer(o.a.silence / silenceChecks), u: o.u}
}

// silenceChecks is how often within silence the timer checks whether the child has read the request.
const silenceChecks = 8

// over is called after the timer has fired. It reports whether the child is silent, and otherwise
// restarts the timer.
func (s *silenceTimer) over() bool {
	switch {
	case s.read:
		return true
	case s.u.starting():
		s.u.a.o.Log.Debug("the child has not read server/discover yet")
		s.Reset(s.u.a.silence / silenceChecks)
	default:
		s.read = true
		s.Reset(s.u.a.silence)
	}
	return false
}

// modernFirst opens the connection by server/discover. If the server is not a modern one, it uses
// initialize.
func (o *opening) modernFirst() error {
	d, i, mute := o.askBoth()
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
		// A known modern server does not end because of server/discover. But the server may have
		// changed, so the next Open tries both eras.
		o.a.eras.Forget(conn.EraModern)
		return o.u.unopened(d.err)
	}
	o.a.o.Log.Debug("no answer to server/discover: trying initialize with another child", "ended", ended)
	if err := o.again(); err != nil {
		return err
	}
	if i = o.initialize(o.ctx); i.refused() { // a modern server that was slow and not silent
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

// askBoth sends server/discover. If the answer shows no modern server, or does not come, askBoth sends
// initialize as well. It returns after the first valid answer, without waiting for the other. mute
// reports that the child reads and stays silent.
func (o *opening) askBoth() (d, i outcome, mute bool) {
	ctx, stop := context.WithCancel(o.ctx)
	var wg sync.WaitGroup
	discovered, initialized := make(chan outcome, 1), make(chan outcome, 1)
	wg.Go(func() { discovered <- o.discover(ctx) })
	greeted, knows := false, false // whether initialize was sent, and whether server/discover was answered
	greet := func() {
		greeted = true
		wg.Go(func() { initialized <- o.initialize(ctx) })
	}
	s := o.awaitSilence()
	defer s.Stop()
	for over := false; !over; {
		select {
		case d = <-discovered:
			knows = true
			s.Stop()
			switch {
			case d.server != nil, d.verdict == conn.SaysOther, d.ended(), i.refused(), o.ctx.Err() != nil:
				over = true
			case !greeted:
				greet()
			}
		case i = <-initialized:
			if over = !i.refused() || knows; !over {
				s.Reset(o.a.silence) // a modern server may refuse initialize before it answers server/discover
			}
		case <-s.C:
			switch {
			case !s.over():
			case !greeted:
				greet()
				s.Reset(o.a.silence)
			default:
				over, mute = true, true
			}
		}
	}
	stop()
	wg.Wait()
	select { // an answer may have come before stop
	case d = <-discovered:
	default:
	}
	select {
	case i = <-initialized:
	default:
	}
	return d, i, mute
}
