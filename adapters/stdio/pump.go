package stdio

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// pump hands on the lines of one of a child's outputs. While nothing comes it
// gives up its goroutine, where the operating system lets it.
type pump struct {
	u     *child
	file  *os.File // nil when it is not a file, as in tests
	lines *lineReader
	take  func(line *jsonrpc.Buffer, over io.Writer)
	end   func() // called once, when there is nothing more to read
}

// newPump makes a pump of r. rest takes what is said on a line longer than
// limit.
func newPump(u *child, r io.Reader, limit int, rest func() io.Writer) *pump {
	p := &pump{u: u, lines: newLineReader(r, limit, rest)}
	p.file, _ = r.(*os.File)
	p.lines.watched = func() {
		if p.over() { // whose deadline has just been put off
			p.settle()
		}
	}
	return p
}

// quietAfter is how long a pump waits in its goroutine before it gives it up.
const quietAfter = 2 * time.Second

// run starts a pump. Close waits for its end.
func (u *child) run(p *pump) {
	if p.file != nil {
		p.lines.quiet = u.a.quiet
	}
	u.wg.Add(1)
	u.mu.Lock()
	u.pumps = append(u.pumps, p)
	u.mu.Unlock()
	go p.run()
}

func (p *pump) run() {
	for {
		line, over, err := p.lines.next()
		switch {
		case err == nil:
			p.take(line, over)
			continue
		case errors.Is(err, errQuiet) && !p.over():
			if p.park() {
				return // resumed by the poller, or by awake
			}
			continue
		case errors.Is(err, errQuiet) && p.lines.quiet > 0:
			p.settle() // the last words may have come with the end
			continue
		}
		p.end()
		p.u.wg.Done()
		return
	}
}

// over reports whether the child has ended, or cannot be written to: what is
// quiet then stays so, although a descendant may hold the pipe open.
func (p *pump) over() bool { return p.u.p.hasExited() || p.u.isUnread() != nil }

// park leaves the waiting to the poller. It reports false when the goroutine
// must stay.
func (p *pump) park() bool {
	p.u.mu.Lock()
	defer p.u.mu.Unlock()
	p.lines.until = time.Time{}
	if !p.u.life.IsClosed() && p.u.unread == nil && !p.u.p.hasExited() && thePoller.park(p.file, func() { go p.run() }) {
		return true
	}
	p.stay()
	return false
}

// settle has the pump wait in its goroutine from now on.
func (p *pump) settle() {
	p.u.mu.Lock()
	defer p.u.mu.Unlock()
	p.stay()
}

// stay does what settle does. The caller holds u.mu.
func (p *pump) stay() {
	p.lines.quiet = 0
	_ = p.file.SetReadDeadline(time.Time{})
	switch { // the line above may have undone it
	case p.u.p.hasExited():
		readFor(p.file, lastWords)
	case p.u.unread != nil:
		readFor(p.file, exitGrace)
	}
}

// awake resumes the pumps that are parked, because the connection ends: a
// descendant that holds the pipes open must not keep them waiting.
func (u *child) awake() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pumps {
		if thePoller.unpark(p.file) {
			p.lines.quiet = 0 // the deadline that stands is not to be put off
			go p.run()
		}
	}
}
