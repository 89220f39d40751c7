package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Adapter runs a server as child processes, one for each connection.
type Adapter struct {
	name    conn.Name
	c       Config
	o       conn.Options
	eras    *conn.Eras            // the eras that the server speaks
	said    *errorLog             // logs the standard error of all children
	silence time.Duration         // the constant of that name, except in tests
	ahead   atomic.Pointer[ahead] // the unused child of StartAhead, or nil; passed after the first connection
}

var (
	_ bridge.Adapter     = (*Adapter)(nil)
	_ bridge.StartsAhead = (*Adapter)(nil)
)

// New returns the adapter for the server of that name. c must be valid.
func New(name string, c Config, o conn.Options) *Adapter {
	o = o.Filled(name)
	setting.Fill(&c)
	return &Adapter{
		name:    conn.Name(name),
		c:       c,
		o:       o,
		eras:    conn.NewEras(o.Era),
		said:    newErrorLog(o.Log),
		silence: silence,
	}
}

// Check returns an error if the program cannot be found. It starts nothing.
func (a *Adapter) Check() error {
	env, _ := environment(a.c.EnvPass, a.c.Env)
	_, err := lookPath(a.c.Command, env, a.c.Cwd)
	return err
}

// ahead is a child that is started before anybody connects.
type ahead struct {
	launched chan struct{} // closed when u and err are set
	u        *child
	err      error         // why the child could not be started
	used     chan struct{} // closed when a connection uses it
}

// passed takes the place of a child in Adapter.ahead when the first connection comes. From then on, StartAhead starts
// nothing.
var passed = new(ahead)

// StartAhead implements bridge.StartsAhead. It starts a child without a handshake, which the first
// connection does, since the handshake names the client to the server. It returns when a connection
// uses the child, when the child has ended, or when ctx ends. If a connection has come before, it
// starts nothing. Calls must not overlap.
func (a *Adapter) StartAhead(ctx, force context.Context) error {
	e := &ahead{
		launched: make(chan struct{}),
		used:     make(chan struct{}),
	}
	if !a.ahead.CompareAndSwap(nil, e) {
		return nil
	}
	e.u, e.err = a.launch(nil)
	close(e.launched)
	c, err := e.u, e.err
	if err == nil {
		select {
		case <-e.used:
			return nil
		case <-c.p.Exited():
		case <-ctx.Done():
		}
	}
	if !a.ahead.CompareAndSwap(e, nil) {
		return nil // a connection has just begun to use the child, and reports what comes of it
	}
	if err != nil {
		return err
	}
	c.attach(bridge.Nobody{})
	if ctx.Err() == nil {
		err = c.unopened(nil)
	}
	_ = c.Close(force)
	return c.withStderr(err)
}

// start returns a child for a connection. The first client without variables of its own gets the child
// of StartAhead, even if that has just ended: then the next child would end as well. All others get a
// new one.
func (a *Adapter) start(from *bridge.Caller, rest bridge.Client) (c *child, err error) {
	own := variables(from.Header)
	var e *ahead
	if len(own) == 0 {
		e = a.ahead.Swap(passed)
	}
	if e != nil && e != passed {
		<-e.launched
		close(e.used)
		c, err = e.u, e.err
	} else {
		c, err = a.launch(own)
	}
	if err != nil {
		return nil, err
	}
	c.attach(rest)
	return c, nil
}

// launch starts a child. Its environment has the forwarded variables, which win over Config.Env.
func (a *Adapter) launch(forwarded map[string]string) (*child, error) {
	c := &child{
		a:      a,
		logged: make(chan struct{}),
		read:   make(chan struct{}),
	}
	c.out = &writer{wait: conn.Backlog{Limit: 2 * a.o.MaxMessage}, fail: c.failWrites}
	var env []string
	env, c.held = environment(a.c.EnvPass, a.c.Env, forwarded)
	p, err := start(command{
		path:  a.c.Command,
		args:  a.c.Args,
		dir:   a.c.Cwd,
		env:   env,
		ended: c.leaderEnded,
	})
	if err != nil {
		return nil, a.name.Unavailable("it could not be started", err)
	}
	a.o.Log.Info("child started", "pid", p.Pid())
	c.p = p
	c.out.w = p.stdin
	c.wg.Go(c.errors(p.stderr).run)
	return c, nil
}

// attach makes rest the receiver of messages that belong to no call, and starts to read the output.
func (c *child) attach(rest bridge.Client) {
	c.rest = rest
	c.Conn = conn.New(string(c.a.name), c, rest, c.a.o.Timeouts)
	c.wg.Go(c.output(c.p.stdout, c.a.o.MaxMessage+conn.EnvelopeRoom).run)
}

// child is one child process, and the connection to it.
type child struct {
	*conn.Conn
	a      *Adapter
	p      *process
	out    *writer
	rest   bridge.Client
	server *bridge.Greeting
	held   []string      // names of the bridge's variables that the child did not get
	read   chan struct{} // closed after standard output was read to its end
	logged chan struct{} // closed after standard error was read to its end
	tail   tail          // last lines of standard error
	noise  []string      // first lines of standard output that are no messages; set before read is closed
	spoke  bool          // a line came on standard output; set before read is closed
	wg     sync.WaitGroup

	life conn.Life

	mu     sync.Mutex // guards unread and gone
	unread error      // why the child cannot be written to; nil if it can
	gone   error      // the error of all sends to a child that has ended
}

// starting reports whether the child has not read all of its input yet. If the operating system does
// not show this, starting returns false.
func (c *child) starting() bool { return holds(c.p.stdin) }

// Server implements bridge.Upstream.
func (c *child) Server() *bridge.Greeting { return c.server }

// unopened returns the error of Open for err. If the child has ended by itself, that is the reason,
// unless the child refused the handshake before.
func (c *child) unopened(err error) error {
	c.lastWords(context.Background())
	if errors.Is(err, bridge.ErrNoHandshake) {
		return err
	}
	return c.a.name.Ended(c.life.Over(), err)
}

// withStderr returns err with the last lines of the child's standard error, the variables that the
// child may have missed, and lines of its output that are no messages. If the child printed nothing,
// withStderr says so. If the child answered, it returns err as it is, since the answer says more. The
// caller has closed the child.
func (c *child) withStderr(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || errors.Is(err, bridge.ErrNoHandshake) || errors.Is(err, bridge.ErrRejected) {
		return err
	}
	quoted := *e
	quoted.Stderr = c.tail.String()
	quoted.Err = errors.Join(e.Err, heldBack(c.held, quoted.Stderr))
	if len(c.noise) > 0 && c.life.Over() == nil { // not if the child has ended, which is the reason then
		quoted.Public += "; its standard output has lines that are not MCP messages"
	}
	switch {
	case c.life.Over() != nil || !errors.Is(e.Kind, bridge.ErrUnavailable):
	case !c.spoke && quoted.Stderr == "":
		quoted.Err = errors.Join(quoted.Err, errors.New("it has printed nothing; "+moreTime))
	case !c.spoke:
		quoted.Err = errors.Join(quoted.Err, errors.New(moreTime))
	}
	if len(c.noise) > 0 {
		quoted.Err = errors.Join(quoted.Err, fmt.Errorf("a message is one JSON text on one line, without headers; it printed:\n  %s", strings.Join(c.noise, "\n  ")))
	}
	return &quoted
}

// moreTime is what to do about a child that did not answer in time.
const moreTime = "if it is slow to start, allow it more time: handshake_timeout, or --handshake-timeout 3m"

// unreadWhy is the error of a child that cannot be written to.
const unreadWhy = "it does not read its input"

// Send implements conn.Sender. If the write fails because the child has just ended, the error says how
// the child ended.
func (c *child) Send(ctx context.Context, o conn.Outgoing) error {
	err := c.out.Send(ctx, o)
	if err != nil && !o.Urgent && c.isUnread() != nil && c.exits() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.gone == nil { // one error for all sends, which the circuit breaker counts once
			c.gone = c.a.name.Lost(ended(c.p.State()), err)
		}
		return c.gone
	}
	return err
}

// exits reports whether the child has ended, or ends within exitGrace.
func (c *child) exits() bool {
	select {
	case <-c.p.Exited():
		return true
	case <-time.After(exitGrace):
		return false
	}
}

// failWrites records that the child cannot be written to, and returns the error for senders. It
// does not end the connection: the reader does that within exitGrace, and may still find answers
// before.
func (c *child) failWrites(err error) error {
	c.mu.Lock()
	c.unread = err
	c.mu.Unlock()
	readFor(c.p.stdout, exitGrace)
	return c.a.name.Lost(unreadWhy, err)
}

// leaderEnded makes sends fail after the child has ended by itself, even if a descendant still has the
// pipes open. Later calls can then go to another child. Calls in flight wait for the rest of the
// output.
func (c *child) leaderEnded(state string) {
	why := ended(state)
	c.out.stop(c.a.name.Unsent(why, c.a.name.Lost(why, nil)))
}

func ended(state string) string { return "its process has ended (" + state + ")" }

// end ends the connection because of the child. Unlike Close, it does not stop the process. Only
// the reader calls end, so that no message is delivered after Gone.
func (c *child) end(why string, cause error) {
	c.lastLines()
	err := c.a.name.Lost(why, cause)
	err.Stderr = c.tail.String()
	news, gone := c.life.End(err)
	if !news {
		return
	}
	c.out.stop(err)
	c.Fail(err)
	if gone {
		c.rest.Gone(err)
	}
}

// Close stops the child and all processes that it started.
func (c *child) Close(ctx context.Context) error {
	c.lastWords(ctx)
	c.life.Close()
	err := c.a.name.Closed()
	c.Fail(err)
	c.out.stop(err)
	c.lastLines()
	c.p.Stop(ctx, stopTimes{stdin: c.a.c.StopStdin, term: c.a.c.StopTerm})
	c.wg.Wait()
	c.out.wg.Wait()
	c.a.o.Log.Info("child stopped", "pid", c.p.Pid(), "state", c.p.State())
	return nil
}

// Pid returns the id of the child process, for operators.
func (c *child) Pid() int { return c.p.Pid() }

// LastLines returns the last lines of the child's standard error, for operators.
func (c *child) LastLines() string { return c.tail.String() }

// lastWords waits until the output of a child that has ended by itself is read, since the output
// may have answers to calls. The reader has a deadline.
func (c *child) lastWords(ctx context.Context) {
	if !c.p.hasExited() {
		return
	}
	select {
	case <-c.read:
	case <-ctx.Done():
	}
}

// lastLines waits until the standard error of a child that has ended by itself is read, which
// probably says why the child ended. Stop would cut off the rest.
func (c *child) lastLines() {
	if !c.p.hasExited() {
		return
	}
	select {
	case <-c.logged:
	case <-time.After(exitGrace):
	}
}

// exitGrace is how long to wait for the child's end after the end of its output, since the exit status
// makes the better error.
const exitGrace = 250 * time.Millisecond

// output returns the pump of the child's output. It drops lines that are longer than limit, in bytes,
// or have no room. The end of the output ends the connection.
func (c *child) output(r io.Reader, limit int) *pump {
	texts := &conn.Parser{
		Options: c.a.o,
		Conn:    c.Conn,
		Quotes:  true,
		Unit:    "lines",
		Warning: "ignored lines on the server's standard output that are not MCP messages: it should log to standard error",
	}
	in := c.Intake()
	p := &pump{lines: newLineReader(r, limit, func() io.Writer {
		in.Size(0)
		return &jsonrpc.Finder{}
	})}
	p.lines.room = in.Size
	p.take = func(buf *jsonrpc.Buffer, over io.Writer) {
		defer in.Drop()
		c.spoke = true
		if big, ok := over.(*jsonrpc.Finder); ok {
			c.a.o.Log.Warn("message dropped", "why", in.Why(c.a.o.MaxMessage), "id", string(big.ID()))
			c.AnswerNotKept(&in, big.ID(), c.a.o.MaxMessage)
			return
		}
		if len(jsonrpc.Bare(buf.B)) == 0 {
			buf.Free()
			return
		}
		texts.Parse(buf, buf.B, &in, texts.Deliver)
	}
	p.end = func() {
		in.Drop() // returns the room of an incomplete line
		texts.Warn()
		c.noise = texts.Printed
		c.finish()
		close(c.read)
	}
	return p
}

// finish ends the connection after the end of the child's output, and finds out why the output
// ended.
func (c *child) finish() {
	if c.exits() {
		c.end(ended(c.p.State()), nil)
	} else if unread := c.isUnread(); unread != nil {
		c.end(unreadWhy, unread)
	} else {
		c.end("it closed its output", nil)
	}
}

func (c *child) isUnread() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}

// maxLogLine bounds a line of standard error in the log, in bytes. The rest is cut off.
const maxLogLine = 8 << 10

// errors returns the pump of the child's standard error, which logs any text.
func (c *child) errors(r io.Reader) *pump {
	p := &pump{lines: newLineReader(r, maxLogLine, func() io.Writer { return &head{limit: maxLogLine} })}
	p.take = func(buf *jsonrpc.Buffer, over io.Writer) {
		line := bytes.TrimRight(buf.B, "\r")
		if long, ok := over.(*head); ok {
			line = append(long.b, "…"...)
		}
		if len(line) > 0 {
			c.a.said.add(line)
			c.tail.add(line)
		}
		buf.Free()
	}
	p.end = func() {
		c.a.said.report()
		close(c.logged)
	}
	return p
}

// head keeps the first bytes that are written to it.
type head struct {
	b     []byte
	limit int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), max(h.limit-len(h.b), 0))]...)
	return len(b), nil
}
