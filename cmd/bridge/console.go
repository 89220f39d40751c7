package main

import (
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/mcp-bridge/bridge/bridge/visible"
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

func newConsole(in io.Reader, out, err io.Writer) *console {
	c := &console{in: in, out: out, err: err}
	c.inTerm, _ = terminal(in)
	c.outTerm, c.width = terminal(out)
	c.errTerm, c.errWidth = terminal(err)
	c.color = c.outTerm && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // no-color.org
	return c
}

// terminal reports whether f is a terminal, and how many columns it has.
func terminal(f any) (bool, int) {
	file, ok := f.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return false, 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return true, width
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
		return visible.Text(s)
	}
	return s
}

// oneLine returns text as one line, with single spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// columns returns how many columns of a terminal s takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += column(r)
	}
	return n
}

func column(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
		r >= 0xff01 && r <= 0xff60,   // full-width forms
		r >= 0x1f300 && r <= 0x1faff: // pictures
		return 2
	}
	return 1
}

// cut shortens s to so many columns.
func cut(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += column(r); n >= width { // one is for the ellipsis
			return strings.TrimRight(s[:i], " ") + "…"
		}
	}
	return s
}
