package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"golang.org/x/text/encoding/htmlindex"
)

// statusLine says which answer came to which request.
func (s *Source) statusLine(status int, p *Plan) string {
	line := fmt.Sprint(status)
	if name := http.StatusText(status); name != "" {
		line += " " + name
	}
	return line + " from " + p.Method + " " + p.path
}

// errorResult is a CallToolResult that says that something went wrong.
func errorResult(text []byte) []byte {
	return append(appendText([]byte(`{"content":[`), text), `],"isError":true}`...)
}

// appendText appends a block of text.
func appendText(dst, text []byte) []byte {
	return append(appendString(append(dst, `{"type":"text","text":`...), string(text)), '}')
}

// result makes the CallToolResult of an answer.
func (s *Source) result(c *Call, p *Plan, a *answer) []byte {
	kind := a.contentType()
	switch {
	case p.Method == http.MethodHead:
		return s.headers(c, p, a)
	case len(a.body) == 0 && !a.more:
		return s.nothing(c, a)
	case a.streamed:
		return s.joined(c, a)
	case isJSON(kind) || kind == "" || kind == "text/plain" && looksJSON(a.body):
		if body := bytes.TrimPrefix(a.body, []byte("\xef\xbb\xbf")); usable(body, a) {
			return s.json(c, body, a)
		}
		return s.text(c, a)
	case isText(kind):
		return s.text(c, a)
	}
	return s.binary(c, p, kind, a)
}

// looksJSON reports whether a text is probably JSON that nobody has labelled.
func looksJSON(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

// maxDepth is how deep JSON may be nested to be treated as such.
const maxDepth = 500

// usable reports whether a body is JSON, or the beginning of it. It comes before
// all that calls itself for each level, as gjson.Valid does.
func usable(b []byte, a *answer) bool {
	depth, str := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case str && c == '\\':
			i++
		case c == '"':
			str = !str
		case str:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if !utf8.Valid(b) && !a.more {
		return false
	}
	return a.more && looksJSON(b) || gjson.ValidBytes(b)
}

// isText reports whether a media type is text for people or programs.
func isText(t string) bool {
	if strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+json") || strings.HasSuffix(t, "+yaml") {
		return true
	}
	switch t {
	case jsonType, formType, "application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/ecmascript",
		"application/toml", "application/sql", "application/graphql", "application/x-sh", "application/xhtml+xml", "application/jwt":
		return true
	}
	return false
}

// nothing is the result of an answer without a body.
func (s *Source) nothing(c *Call, a *answer) []byte {
	text := fmt.Sprint(a.status)
	if name := http.StatusText(a.status); name != "" {
		text += " " + name
	}
	if at := a.header.Get("Location"); at != "" {
		text += "\nLocation: " + head([]byte(at), maxLine)
	}
	out := appendText([]byte(`{"content":[`), s.mask([]byte(text)))
	out = append(out, ']')
	if c.Tool.OutputSchema != nil { // then clients insist on structured content
		out = s.appendStructured(out, c, []byte("{}"))
	}
	return append(out, '}')
}

// headers is the result of a HEAD: the answer's headers are all there is.
func (s *Source) headers(c *Call, p *Plan, a *answer) []byte {
	var b strings.Builder
	b.WriteString(s.statusLine(a.status, p))
	for _, name := range []string{"Content-Type", "Content-Length", "Last-Modified", "Etag", "Location", "Link", "Allow", "Accept-Ranges"} {
		for _, v := range a.header[name] {
			b.WriteString("\n" + name + ": " + head([]byte(v), maxLine))
		}
	}
	text := s.mask([]byte(b.String()))
	return s.finish(c, appendText([]byte(`{"content":[`), text), "", text)
}

// maxLine is how much of a header's value is told.
const maxLine = 1000

// text is the result of an answer that is text.
func (s *Source) text(c *Call, a *answer) []byte {
	body := s.mask(decoded(a))
	note := a.note()
	if most := s.maxAnswer(c); len(body) > most {
		note = strings.TrimSpace(fmt.Sprintf("The first %d of %d bytes are shown. %s", most, len(body), note))
		body = body[:most]
		for len(body) > 0 && !utf8.RuneStart(body[len(body)-1]) {
			body = body[:len(body)-1]
		}
		if n := len(body); n > 0 && body[n-1] >= utf8.RuneSelf {
			body = body[:n-1]
		}
	}
	return s.finish(c, appendText([]byte(`{"content":[`), body), note, body)
}

// finish appends a note, when there is one, and ends the content and the result.
// Clients that know an output schema refuse results without structured content:
// they get the text there as well.
func (s *Source) finish(c *Call, dst []byte, note string, text []byte) []byte {
	if note != "" {
		dst = appendText(append(dst, ','), []byte(note))
	}
	dst = append(dst, ']')
	if c.Tool.OutputSchema != nil {
		dst = s.appendStructured(dst, c, appendString(nil, string(text)))
	}
	return append(dst, '}')
}

// note says when there would have been more.
func (a *answer) note() string {
	if !a.more {
		return ""
	}
	return "The answer " + a.why + ": what is shown is its beginning."
}

// decoded returns the body as UTF-8, whatever its charset.
func decoded(a *answer) []byte {
	_, params, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "charset") {
			continue
		}
		enc, err := htmlindex.Get(strings.Trim(strings.TrimSpace(value), `"'`))
		if err != nil {
			break
		}
		if b, err := enc.NewDecoder().Bytes(a.body); err == nil {
			return b
		}
	}
	switch {
	case bytes.HasPrefix(a.body, []byte("\xef\xbb\xbf")):
		return a.body[3:]
	case !utf8.Valid(a.body) && !a.more: // nobody has said: what it most often is
		if enc, err := htmlindex.Get("windows-1252"); err == nil {
			if b, err := enc.NewDecoder().Bytes(a.body); err == nil {
				return b
			}
		}
	}
	return a.body
}

// binary is the result of an answer that is no text: an image, a sound, or a
// file.
func (s *Source) binary(c *Call, p *Plan, kind string, a *answer) []byte {
	if a.more {
		text := fmt.Appendf(nil, "The answer is of type %s and larger than %d bytes, which is as much as is read.", kind, s.o.MaxBody)
		return s.finish(c, appendText([]byte(`{"content":[`), text), "", text)
	}
	if !sendable(kind) {
		kind = anyBytes
	}
	about := fmt.Appendf(nil, "The answer is of type %s and has %d bytes.", kind, len(a.body))
	data := base64.StdEncoding.EncodeToString(a.body)
	group, _, _ := strings.Cut(kind, "/")
	out := []byte(`{"content":[`)
	if group == "image" || group == "audio" {
		out = append(out, `{"type":"`+group+`","data":"`+data+`","mimeType":`...)
		return s.finish(c, append(appendString(out, kind), '}'), "", about)
	}
	out = append(out, `{"type":"resource","resource":{"uri":`...)
	out = appendString(out, "rest://"+s.name()+p.path)
	out = append(out, `,"mimeType":`...)
	out = appendString(out, kind)
	return s.finish(c, append(out, `,"blob":"`+data+`"}}`...), "", about)
}

// joined is the result of a stream.
func (s *Source) joined(c *Call, a *answer) []byte {
	if !c.shapes() {
		return s.text(c, a)
	}
	// Shaping sees all parts as one array.
	all := []byte{'['}
	for line := range bytes.Lines(a.body) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(all) > 1 {
			all = append(all, ',')
		}
		if usable(line, &answer{}) {
			all = append(all, line...)
		} else {
			all = appendString(all, string(line))
		}
	}
	whole := *a
	whole.more = false // the parts that are there are whole
	return s.json(c, append(all, ']'), &whole)
}

const hexSmall = "0123456789abcdef"

// appendString appends a string as JSON. What is not UTF-8 is replaced.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexSmall[c>>4], hexSmall[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
