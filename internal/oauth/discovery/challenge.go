package discovery

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Challenge says which token a server needs (RFC 6750 §3, RFC 9728 §5.1).
type Challenge struct {
	// Metadata is the URL of the server's metadata. It may be empty.
	Metadata string
	// Scopes are the scopes that the request needs; may be nil.
	Scopes []string
	// Error is why the server refused the token, as a code such as insufficient_scope. It may be empty.
	Error string
}

// Bearer returns the challenge for a bearer token in an answer. There may be several headers with several challenges
// each. A malformed header counts as missing (I-201).
func Bearer(h http.Header) (Challenge, bool) {
	for _, line := range h.Values("WWW-Authenticate") {
		for _, c := range challenges(line) {
			if strings.EqualFold(c.scheme, "Bearer") {
				return Challenge{c.params["resource_metadata"], strings.Fields(c.params["scope"]), c.params["error"]}, true
			}
		}
	}
	return Challenge{}, false
}

// challenge is a challenge for any scheme.
type challenge struct {
	scheme string
	params map[string]string
}

// challenges parses the value of a header: a list of challenges, each with parameters, one token, or nothing (RFC 9110
// §11.6.1). For a malformed value it returns nil.
func challenges(s string) (all []challenge) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return all
		}
		name, rest := word(s)
		if name == "" {
			return nil
		}
		if value, ok := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "="); ok && len(all) > 0 {
			text, left, ok := text(strings.TrimLeft(value, " \t"))
			last, key := all[len(all)-1], strings.ToLower(name)
			if _, twice := last.params[key]; !ok || twice || last.params == nil {
				return nil
			}
			last.params[key], s = text, left
			continue
		}
		one := challenge{name, map[string]string{}}
		switch {
		case rest != "" && !strings.ContainsRune(" \t,", rune(rest[0])):
			return nil
		default:
			if left, ok := token68(strings.TrimLeft(rest, " \t")); ok {
				one.params, rest = nil, left // no parameter can follow
			}
		}
		all, s = append(all, one), rest
	}
}

// word returns the token at the beginning of s, and the rest.
func word(s string) (token, rest string) {
	n := 0
	for n < len(s) && httpguts.IsTokenRune(rune(s[n])) {
		n++
	}
	return s[:n], s[n:]
}

// token68 cuts off the token that some schemes, such as Negotiate, have in place of parameters.
func token68(s string) (rest string, ok bool) {
	n := 0
	for n < len(s) && (s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || s[n] >= '0' && s[n] <= '9' || strings.IndexByte("-._~+/", s[n]) >= 0) {
		n++
	}
	if n == 0 {
		return s, false
	}
	rest = strings.TrimLeft(s[n:], "=")
	end := strings.TrimLeft(rest, " \t")
	return rest, end == "" || end[0] == ','
}

// text returns the value at the beginning of s: a token or a quoted string.
func text(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest = word(s)
		return value, rest, value != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
