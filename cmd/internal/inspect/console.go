package inspect

import (
	"io"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// console holds the input and output of a command, and their properties.
//
// Text of a server never reaches a terminal unescaped: escape sequences could rewrite the
// screen, or type for the user.
type console struct {
	in       io.Reader
	out, err io.Writer
	// Which of them are terminals.
	inTerm, outTerm, errTerm bool
	width                    int  // columns of out; 0 when it is no terminal
	errWidth                 int  // columns of err
	color                    bool // on out
}

// newConsole returns the console of these files; isTerminal tests for terminals.
func newConsole(in io.Reader, out, err io.Writer, isTerminal func(any) (bool, int)) *console {
	c := &console{
		in:  in,
		out: out,
		err: err,
	}
	c.inTerm, _ = isTerminal(in)
	c.outTerm, c.width = isTerminal(out)
	c.errTerm, c.errWidth = isTerminal(err)
	c.color = c.outTerm && terminal.Colors()
	return c
}

// asks reports whether the command can ask the user.
func (c *console) asks() bool { return c.inTerm && c.errTerm }

// bold returns s in bold if out shows that.
func (c *console) bold(s string) string {
	if !c.color || s == "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// text returns a server's text with escapes, safe for out.
func (c *console) text(s string) string {
	if c.outTerm {
		return sanitize.Text(s)
	}
	return s
}
