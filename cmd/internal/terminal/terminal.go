// Package terminal detects terminals and their width, and formats text in columns: as a line cut to a width, or as a
// table. Characters of some scripts take two columns.
//
// It does not escape control characters. Package sanitize does.
package terminal

import (
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Is reports whether f is a terminal, and the terminal's number of columns.
func Is(f any) (bool, int) {
	if o, ok := f.(*Output); ok {
		f = o.s.Writer
	}
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

// Rows returns the number of rows of a terminal, or 0 for another file.
func Rows(f any) int {
	if is, _ := Is(f); !is {
		return 0
	}
	_, rows, err := term.GetSize(int(f.(*os.File).Fd()))
	if err != nil || rows <= 0 {
		rows = 24
	}
	return rows
}

// Raw makes a terminal send each key at once and not show it, until restore is called. Meanwhile, lines must end with
// \r\n. If f is not a terminal, ok is false.
func Raw(f any) (restore func(), ok bool) {
	if is, _ := Is(f); !is {
		return nil, false
	}
	fd := int(f.(*os.File).Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, false
	}
	return func() { _ = term.Restore(fd, before) }, true // there is no other way
}

// Colors reports whether to use colors on a terminal (no-color.org).
func Colors() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// OneLine returns text as one line, with single spaces.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Columns returns the width of s in columns of a terminal.
func Columns(s string) int {
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

// Wrap breaks text between words into lines of at most width columns. A longer word gets its own line.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Cut shortens s to width columns, with an ellipsis at its end.
func Cut(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += column(r); n >= width { // one column is for the ellipsis
			return strings.TrimRight(s[:i], " ") + "…"
		}
	}
	return s
}
