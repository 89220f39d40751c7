package inspect

import (
	"io"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// console holds the input and output of a command, and their properties.
//
// Text of a server never reaches a terminal unescaped, because escape sequences could rewrite the screen or type for
// the user.
type console struct {
	in       io.Reader
	out, err io.Writer
	// inTerm, outTerm and errTerm report which of in, out and err are terminals.
	inTerm, outTerm, errTerm bool
	width                    int  // columns of out; 0 if out is not a terminal
	errWidth                 int  // columns of err
	color                    bool // out shows colors
}

// newConsole returns the console for these files. isTerminal detects terminals.
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

func (c *console) asks() bool { return c.inTerm && c.errTerm }

// bold returns s in bold if out shows bold text.
func (c *console) bold(s string) string {
	if !c.color || s == "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// text returns a server's text, escaped if out is a terminal.
func (c *console) text(s string) string {
	if c.outTerm {
		return sanitize.Text(s)
	}
	return s
}
