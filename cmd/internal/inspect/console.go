package inspect

import (
	"io"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// console is where a command reads and writes, and what is known about it.
//
// What a server sends never reaches a terminal as it is: escape sequences in
// it could rewrite what the user has read, or type for them.
type console struct {
	in       io.Reader
	out, err io.Writer
	// Which of them are terminals.
	inTerm, outTerm, errTerm bool
	width                    int  // columns of out; 0 when it is no terminal
	errWidth                 int  // of err
	color                    bool // on out
}

// newConsole takes what tells terminals from other files.
func newConsole(in io.Reader, out, err io.Writer, isTerminal func(any) (bool, int)) *console {
	c := &console{in: in, out: out, err: err}
	c.inTerm, _ = isTerminal(in)
	c.outTerm, c.width = isTerminal(out)
	c.errTerm, c.errWidth = isTerminal(err)
	c.color = c.outTerm && terminal.Colors()
	return c
}

// asks reports whether a person can be asked.
func (c *console) asks() bool { return c.inTerm && c.errTerm }

// bold returns s in bold print where that is possible.
func (c *console) bold(s string) string {
	if !c.color || s == "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// text returns text of a server's as it may be written to out.
func (c *console) text(s string) string {
	if c.outTerm {
		return sanitize.Text(s)
	}
	return s
}
