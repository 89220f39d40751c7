package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Options are the limits of a server's connections, and what is spoken there.
type Options struct {
	Log        *slog.Logger  // nil means slog.Default()
	MaxMessage int           // bytes of a line from the child; 0 means 16 MiB and room for the envelope
	Timeouts   conn.Timeouts // of each call; 0 means none
	Era        conn.Era      // in which the server is spoken to; empty means bridge.EraAuto
	Revision   string        // the highest that a legacy server is offered; empty means no limit
}

// Adapter runs a server as child processes, one for each connection.
type Adapter struct {
	name    string
	c       Config
	o       Options
	eras    *conn.Eras    // that the server speaks
	said    *errorLog     // to standard error
	quiet   time.Duration // after which a pump is parked
	silence time.Duration // as the constant of that name
}

var _ bridge.Adapter = (*Adapter)(nil)

// envelopeRoom is what a message may have beyond the limit on its payload: the
// names around it. An answer of the limit's size to a request of that size
// must not fail for a few bytes.
const envelopeRoom = 64 << 10

// New makes the adapter for the server of that name. c must be valid.
func New(name string, c Config, o Options) *Adapter {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("server", name)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	if c.StopStdin == 0 {
		c.StopStdin = 2 * time.Second
	}
	if c.StopTerm == 0 {
		c.StopTerm = 3 * time.Second
	}
	return &Adapter{name: name, c: c, o: o, eras: conn.NewEras(o.Era), said: newErrorLog(o.Log), quiet: quietAfter, silence: silence}
}

// Check tells whether the program can be found. It starts nothing.
func (a *Adapter) Check() error {
	_, err := lookPath(a.c.Command, environment(a.c.Env), a.c.Cwd)
	return err
}

// start starts a child. What is forwarded of the client's headers is in its
// environment, over Config.Env.
func (a *Adapter) start(from *bridge.Caller, rest bridge.Client) (*upstream, error) {
	u := &upstream{a: a, rest: rest, logged: make(chan struct{}), read: make(chan struct{})}
	u.out = &writer{limit: 2 * a.o.MaxMessage, fail: u.deaf}
	p, err := start(command{path: a.c.Command, args: a.c.Args, dir: a.c.Cwd, env: environment(a.c.Env, variables(from.Header)), dead: u.dead, over: u.awake})
	if err != nil {
		return nil, &bridge.Error{Server: a.name, Kind: bridge.ErrUnavailable, Public: "it could not be started", Err: err}
	}
	a.o.Log.Debug("child started", "pid", p.Pid())
	u.p = p
	u.out.w = p.Stdin()
	u.Conn = conn.New(a.name, u.out, rest, a.o.Timeouts)
	u.run(u.output(p.stdout, a.o.MaxMessage+envelopeRoom))
	u.run(u.errors(p.stderr))
	return u, nil
}

// upstream is one child.
type upstream struct {
	*conn.Conn
	a      *Adapter
	p      *process
	out    *writer
	rest   bridge.Client
	server *bridge.Greeting
	read   chan struct{} // closed when the child's output has been read
	logged chan struct{} // closed when the child's log has been read
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the rest
	open   bool       // Open has succeeded
	over   string     // why the connection has ended by itself
	closed bool       // because of Close
	unread error      // why the child cannot be written to
	pumps  []*pump    // of its outputs
}

// starting reports whether the child has not read yet what it was asked. Where
// the operating system does not tell, it counts as read.
func (u *upstream) starting() bool { return holds(u.p.stdin) }

// Server returns what the handshake said.
func (u *upstream) Server() *bridge.Greeting { return u.server }

// opened settles the race between the end of Open and the end of the child.
func (u *upstream) opened() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over != "" {
		return u.lost(u.over, nil)
	}
	u.open = true
	return nil
}

// unopened returns err as Open gives it: if the child has ended by itself, that
// is the reason, unless it has said before what it thinks of the handshake.
func (u *upstream) unopened(err error) error {
	u.lastWords(context.Background())
	why := u.why()
	if why == "" || errors.Is(err, bridge.ErrRefused) {
		return err
	}
	failed := &bridge.Error{Server: u.a.name, Kind: bridge.ErrUnavailable, Public: "handshake: " + why}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		failed.Err = e.Err
	}
	return failed
}

func (u *upstream) why() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over
}

// lost is the error of calls whose connection has ended by itself.
func (u *upstream) lost(why string, err error) error {
	return &bridge.Error{Server: u.a.name, Kind: bridge.ErrLost, Public: why + "; whether it acted on the request is unknown", Err: err}
}

// unreadWhy is what is said of a child that cannot be written to.
const unreadWhy = "it does not read its input"

// deaf notes that the child cannot be written to. It is for the reader to end
// the connection: there may be answers to read yet, and if the child has ended,
// which is the most likely reason, the reader sees that.
func (u *upstream) deaf(err error) error {
	u.mu.Lock()
	u.unread = err
	u.mu.Unlock()
	readFor(u.p.stdout, exitGrace)
	u.awake()
	return u.lost(unreadWhy, err)
}

// dead lets nothing more be sent to a child that has ended by itself, although a
// descendant may hold its pipes open: what comes from now on can go to another
// one. The calls under way wait for its last words.
func (u *upstream) dead(state string) {
	why := ended(state)
	u.out.stop(&bridge.Error{Server: u.a.name, Kind: bridge.ErrUnsent, Public: why, Err: u.lost(why, nil)})
}

func ended(state string) string { return "its process has ended (" + state + ")" }

// end ends the connection for a reason of the child's. Only the reader calls
// it, so that nothing is delivered after Gone. The process is stopped by
// whoever closes the upstream.
func (u *upstream) end(why string, cause error) {
	err := u.lost(why, cause)
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	u.over = why
	gone := u.open
	u.mu.Unlock()
	u.out.stop(err)
	u.Fail(err)
	if gone {
		u.rest.Gone(err)
	}
}

// Close stops the child and all that it started.
func (u *upstream) Close(ctx context.Context) error {
	u.lastWords(ctx)
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.awake()
	err := &bridge.Error{Server: u.a.name, Kind: bridge.ErrLost, Public: "its connection was closed"}
	u.Fail(err)
	u.out.stop(err)
	u.lastLines()
	u.p.Stop(ctx, stopTimes{stdin: u.a.c.StopStdin, term: u.a.c.StopTerm})
	u.wg.Wait()
	u.out.wg.Wait()
	u.a.o.Log.Debug("child stopped", "pid", u.p.Pid(), "state", u.p.State())
	return nil
}

// lastWords waits until the output of a child that has ended by itself is read:
// it may have answered calls before. The reader does not wait for long.
func (u *upstream) lastWords(ctx context.Context) {
	select {
	case <-u.p.Exited():
	default:
		return
	}
	select {
	case <-u.read:
	case <-ctx.Done():
	}
}

// lastLines waits until the log of a child that has ended by itself is read:
// it probably says why, and Stop would cut it off.
func (u *upstream) lastLines() {
	select {
	case <-u.p.Exited():
	default:
		return
	}
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-u.logged:
	case <-timer.C:
	}
}

// exitGrace is how long the end of a child's output may come before the news
// of its own end, which makes the better message.
const exitGrace = 250 * time.Millisecond

// output takes messages from the child's output until it ends, and with it the
// connection. Lines longer than limit are dropped, and those that have no room.
func (u *upstream) output(r io.Reader, limit int) *pump {
	noise := &noise{log: u.a.o.Log}
	first := true
	in := u.Intake()
	p := newPump(u, r, limit, func() io.Writer {
		in.Size(0)
		return &jsonrpc.Finder{}
	})
	p.lines.room = in.Size
	p.take = func(buf *jsonrpc.Buffer, over io.Writer) {
		defer in.Drop()
		if big, ok := over.(*jsonrpc.Finder); ok {
			u.a.o.Log.Warn("message dropped", "why", in.Why(u.a.o.MaxMessage), "id", string(big.ID()))
			u.Unkept(&in, big.ID(), u.a.o.MaxMessage)
			return
		}
		line := buf.B
		if first {
			first = false
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		u.message(buf, line, &in, noise)
	}
	p.end = func() {
		in.Drop() // of a line that has not ended
		noise.report()
		u.finish()
		close(u.read)
	}
	return p
}

// finish ends the connection after the child's output.
func (u *upstream) finish() {
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-u.p.Exited():
		u.end(ended(u.p.State()), nil)
		return
	case <-timer.C:
	}
	if unread := u.isUnread(); unread != nil {
		u.end(unreadWhy, unread)
	} else {
		u.end("it closed its output", nil)
	}
}

func (u *upstream) isUnread() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unread
}

// message hands on what stands on one line, a part of buf.
func (u *upstream) message(buf *jsonrpc.Buffer, line []byte, in *conn.Intake, noise *noise) {
	if len(bytes.TrimSpace(line)) == 0 {
		buf.Free()
		return
	}
	m, err := jsonrpc.Parse(line)
	if err == nil {
		in.Give(m.Own(buf))
		u.Deliver(m)
		return
	}
	if jsonrpc.IsBatch(line) {
		// Only 2025-03-26 knows batches, and a server has no need to send them;
		// one that does is understood all the same.
		if all, err := jsonrpc.Split(line); err == nil && len(all) > 0 {
			for _, one := range all {
				if m, err := jsonrpc.Parse(one); err == nil {
					u.Deliver(m)
				} else {
					u.Invalid(one, err)
					noise.add(one)
				}
			}
			return // the messages refer to buf: it is left to the garbage collector
		}
	}
	u.Invalid(line, err)
	noise.add(line)
	buf.Free()
}

// noise counts what a child prints beside messages, and says so once in a
// while.
type noise struct {
	log   *slog.Logger
	lines int
	said  time.Time
}

const noiseEvery = time.Minute

func (n *noise) add(line []byte) {
	n.lines++
	n.log.Debug("not a message", "text", string(line[:min(len(line), 200)]))
	if time.Since(n.said) >= noiseEvery {
		n.report()
	}
}

func (n *noise) report() {
	if n.lines > 0 {
		n.log.Warn("lines dropped: the server prints what is not a message to its standard output", "lines", n.lines)
		n.lines, n.said = 0, time.Now()
	}
}

// maxLogLine is the length at which a line of the child's log is cut.
const maxLogLine = 8 << 10

// errors logs what the child writes to its standard error: any text, of any
// severity.
func (u *upstream) errors(r io.Reader) *pump {
	p := newPump(u, r, maxLogLine, func() io.Writer { return &head{limit: maxLogLine} })
	p.take = func(buf *jsonrpc.Buffer, over io.Writer) {
		line := bytes.TrimRight(buf.B, "\r")
		if long, ok := over.(*head); ok {
			line = append(long.b, "…"...)
		}
		if len(line) > 0 {
			u.a.said.add(line)
		}
		buf.Free()
	}
	p.end = func() {
		u.a.said.report()
		close(u.logged)
	}
	return p
}

// head keeps the beginning of what is written to it.
type head struct {
	b     []byte
	limit int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), max(h.limit-len(h.b), 0))]...)
	return len(b), nil
}
