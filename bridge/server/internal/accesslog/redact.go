package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// secretText matches probable secrets in a text: the line of a header, name=value, name: value, and
// the credentials after the name of an authentication scheme. A quoted value ends with its quotes.
// A value that begins like an object or a list, or with escaped quotes, extends to the end.
var secretText = regexp.MustCompile(`(?is)` +
	`([\w-]*(?:authorization|cookie)[\w-]*\s*:\s*)[^\s"'\\][^\r\n]*` +
	`|([\w-]*(?:token|passw(?:or)?d|passphrase|secret|api[-_]?key|access[-_]?key|authorization|cookie|session|credential)[\w-]*\\*["']?\s*(?::|=>?)\s*)` +
	`(?:(")(?:[^"\\]|\\.)*|(')(?:[^'\\]|\\.)*|(\\+["']).*|[\[{].*|\\*(?:(?:bearer|basic|digest)\s+)?[^\s"'\\&,;]+)` +
	`|\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}`)

// errFull means that the output has reached its limit.
var errFull = errors.New("full")

// maxNested bounds the depth of JSON texts within JSON texts. A deeper text is replaced by redacted.
const maxNested = 8

// Redact copies raw JSON without the values of members that look like secrets, at any depth, also in texts that are
// JSON themselves. Redact copies about most bytes, and reports whether it copied everything. The result is always a
// JSON value.
func Redact(raw []byte, most int) (_ []byte, whole bool) {
	r := &redactor{most: most}
	r.in = json.NewDecoder(bytes.NewReader(raw))
	r.in.UseNumber()
	err := r.value()
	if err == nil {
		return r.out, true
	}
	if !errors.Is(err, errFull) { // impossible: raw was parsed before
		return []byte("null"), false
	}
	return r.out, false
}

// redactor copies JSON.
type redactor struct {
	in    *json.Decoder
	out   []byte
	most  int // length to which out may grow
	depth int // of texts within texts
}

// value copies the next value. The copy is complete even if the error is errFull.
func (r *redactor) value() error {
	t, err := r.in.Token()
	if err != nil {
		return err
	}
	return r.rest(t)
}

// rest copies the value that begins with t.
func (r *redactor) rest(t json.Token) error {
	switch t := t.(type) {
	case json.Delim:
		return r.members(t)
	case string:
		return r.text(t)
	case json.Number:
		return r.put([]byte(t))
	case bool:
		if t {
			return r.put([]byte("true"))
		}
		return r.put([]byte("false"))
	}
	return r.put([]byte("null"))
}

// put appends a value as it is, or null if it does not fit.
func (r *redactor) put(value []byte) error {
	if len(r.out)+len(value) > r.most {
		r.out = append(r.out, "null"...)
		return errFull
	}
	r.out = append(r.out, value...)
	return nil
}

// members copies an object or an array after its first character. A copy that is cut is closed too.
func (r *redactor) members(open json.Delim) error {
	end := byte('}')
	if open == '[' {
		end = ']'
	}
	r.out = append(r.out, byte(open))
	defer func() { r.out = append(r.out, end) }()
	for first := true; r.in.More(); first = false {
		if len(r.out) >= r.most {
			return errFull
		}
		if !first {
			r.out = append(r.out, ',')
		}
		if open == '{' {
			t, err := r.in.Token()
			if err != nil {
				return err
			}
			name, _ := t.(string) // a name is always a string
			r.out = append(gjson.AppendJSONString(r.out, clipped(name)), ':')
			if sanitize.IsSecret(name) {
				if err := r.skip(); err != nil {
					return err
				}
				r.out = gjson.AppendJSONString(r.out, redacted)
				continue
			}
		}
		if err := r.value(); err != nil {
			return err
		}
	}
	_, err := r.in.Token() // the closing delimiter
	return err
}

// skip skips a value. If the text ends within the value, skip copies null.
func (r *redactor) skip() error {
	for depth := 0; ; {
		t, err := r.in.Token()
		if err != nil {
			r.out = append(r.out, "null"...)
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// text copies a string. A string that is JSON itself is redacted as JSON. In any other string, redacted replaces what
// secretText matches.
func (r *redactor) text(s string) error {
	room := max(r.most-len(r.out), 0)
	if inner := strings.TrimLeft(s, " \t\r\n"); inner != "" && strings.IndexByte(`{["`, inner[0]) >= 0 {
		if r.depth == maxNested {
			return r.put([]byte(`"` + redacted + `"`))
		}
		in := &redactor{
			in:    json.NewDecoder(strings.NewReader(inner)),
			most:  room,
			depth: r.depth + 1,
		}
		in.in.UseNumber()
		err := in.value()
		if errors.Is(err, errFull) {
			r.out = gjson.AppendJSONString(r.out, string(in.out))
			return errFull
		}
		if err == nil {
			if _, err = in.in.Token(); errors.Is(err, io.EOF) { // nothing follows
				r.out = gjson.AppendJSONString(r.out, string(in.out))
				return nil
			}
		}
	}
	whole := len(s) <= room
	if !whole {
		for room > 0 && !utf8.RuneStart(s[room]) {
			room--
		}
		s = s[:room]
	}
	s = secretText.ReplaceAllString(s, "${1}${2}${3}${4}${5}${6}"+redacted)
	if !whole {
		s += "…"
	}
	r.out = gjson.AppendJSONString(r.out, s)
	if !whole {
		return errFull
	}
	return nil
}
