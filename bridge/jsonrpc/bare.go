package jsonrpc

import (
	"bytes"
	"regexp"
)

const byteOrderMark = "\xef\xbb\xbf"

// escape matches an escape sequence of a terminal (ECMA-48): a control sequence, such as a colour; a command of the
// operating system, such as a title; or a sequence of two characters.
var escape = regexp.MustCompile(`^\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])`)

// Bare returns b without the characters around a message that some peers add and that mean nothing: white space, byte
// order marks, control characters and escape sequences of terminals.
func Bare(b []byte) []byte {
	for n := 1; n > 0 && len(b) > 0; b = b[n:] {
		n = meaningless(b)
	}
	if len(b) == 0 || b[len(b)-1] == '}' {
		return b
	}
	end := bytes.LastIndexByte(b, '}') + 1
	for i := end; i < len(b) && (b[i] == ']' || b[i] == ' ' || b[i] == '\n' || b[i] == '\r'); i++ {
		if b[i] == ']' { // the end of a batch
			end = i + 1
		}
	}
	for rest, n := b[end:], 0; len(rest) > 0; rest = rest[n:] {
		if n = meaningless(rest); n == 0 {
			return b
		}
	}
	return b[:end]
}

// meaningless returns the length of the character or sequence at the beginning of b, if it means nothing; otherwise 0.
func meaningless(b []byte) int {
	switch c := b[0]; {
	case c == 0x1b:
		return max(1, len(escape.Find(b)))
	case c <= ' ' || c == 0x7f:
		return 1
	case c == byteOrderMark[0] && bytes.HasPrefix(b, []byte(byteOrderMark)):
		return len(byteOrderMark)
	}
	return 0
}
