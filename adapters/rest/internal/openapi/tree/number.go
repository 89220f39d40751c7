package tree

import (
	"strconv"
	"strings"
)

// isNumber reports whether s is a number in JSON's syntax.
func isNumber(s string) bool {
	digits := func() bool {
		n := 0
		for n < len(s) && '0' <= s[n] && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	s = strings.TrimPrefix(s, "-")
	if strings.HasPrefix(s, "0") {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(s, ".") {
		if s = s[1:]; !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		if s = s[1:]; s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}

// IsNumber reports whether s is a number in JSON's syntax that is cheap to parse.
func IsNumber(s string) bool { return isNumber(s) && sensible(s) }

// sensible reports whether a number is cheap to parse: it has fewer than 400 digits, and an exponent
// between -400 and 400.
func sensible(s string) bool {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return len(s) < 400
	}
	e, err := strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
	return err == nil && -400 < e && e < 400 && i < 400
}
