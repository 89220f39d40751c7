package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"

	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// statusLine returns the status of an answer with the request.
func (s *Source) statusLine(status int, p *Plan) string {
	return statusText(status) + " from " + p.Method + " " + p.path
}

func statusText(status int) string {
	return strings.TrimSuffix(fmt.Sprint(status, " ", http.StatusText(status)), " ")
}

// result returns the CallToolResult of an answer.
func (s *Source) result(c *Call, p *Plan, a *answer) []byte {
	kind := a.contentType()
	switch {
	case p.Method == http.MethodHead:
		return s.headResult(c, p, a)
	case len(a.body) == 0 && !a.more:
		return s.emptyResult(c, a)
	case a.streamed:
		return s.streamResult(c, a)
	case httpio.IsJSON(kind) || kind == "" || kind == "text/plain" && looksJSON(a.body):
		return s.jsonResult(c, bytes.TrimPrefix(a.body, []byte("\xef\xbb\xbf")), a)
	case isText(kind):
		return s.textResult(c, a)
	}
	return s.binaryResult(c, p, kind, a)
}

// isText reports whether content of a media type is text.
func isText(t string) bool {
	if strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+json") || strings.HasSuffix(t, "+yaml") {
		return true
	}
	switch t {
	case httpio.JSON, httpio.Form, "application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/ecmascript",
		"application/toml", "application/sql", "application/graphql", "application/x-sh", "application/xhtml+xml", "application/jwt":
		return true
	}
	return false
}

// emptyResult returns the result of an answer without a body: the status and the headers.
func (s *Source) emptyResult(c *Call, a *answer) []byte {
	text := statusText(a.status)
	for _, line := range s.shownHeaders(c, a) {
		text += "\n" + line
	}
	out := appendText([]byte(`{"content":[`), []byte(text))
	out = append(out, ']')
	if c.Tool.OutputSchema != nil { // clients then require structured content
		out = s.appendStructured(out, c, []byte("{}"))
	}
	return append(out, '}')
}

// headResult returns the result of a HEAD request: the status and the headers.
func (s *Source) headResult(c *Call, p *Plan, a *answer) []byte {
	var b strings.Builder
	b.WriteString(s.statusLine(a.status, p))
	for _, name := range []string{"Content-Type", "Content-Length", "Last-Modified", "Etag", "Location", "Link", "Allow", "Accept-Ranges"} {
		for _, v := range a.header[name] {
			b.WriteString("\n" + name + ": " + s.head([]byte(v), maxLine))
		}
	}
	text := s.mask([]byte(b.String()))
	return s.finish(c, nil, appendText([]byte(`{"content":[`), text), "", text)
}

// textResult returns the result of an answer that is text.
func (s *Source) textResult(c *Call, a *answer) []byte {
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
	room := quotedSize(body)
	if c.Tool.OutputSchema != nil {
		room *= 2
	}
	return s.finish(c, a, appendText(beginResult(room), body), note, body)
}

// finish appends a note, unless empty, and ends the content and the result. If the tool has an output
// schema, clients refuse a result without structured content: finish repeats the text there. If a is
// nil, the result shows no headers.
func (s *Source) finish(c *Call, a *answer, dst []byte, note string, text []byte) []byte {
	if note != "" {
		dst = appendText(append(dst, ','), []byte(note))
	}
	dst = s.appendHeaders(dst, c, a)
	dst = append(dst, ']')
	if c.Tool.OutputSchema != nil {
		dst = s.appendStructured(dst, c, rawjson.AppendText(make([]byte, 0, quotedSize(text)), text))
	}
	return append(dst, '}')
}

// decoded returns the body in UTF-8. It decodes from the charset in Content-Type. If that is missing or
// unknown, it decodes a body that is no UTF-8 from windows-1252.
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
	case !utf8.Valid(a.body) && !a.more: // probably the most common other charset
		if enc, err := htmlindex.Get("windows-1252"); err == nil {
			if b, err := enc.NewDecoder().Bytes(a.body); err == nil {
				return b
			}
		}
	}
	return a.body
}

// binaryResult returns the result of an answer that is an image, audio or a file.
func (s *Source) binaryResult(c *Call, p *Plan, kind string, a *answer) []byte {
	if a.more {
		text := fmt.Appendf(nil, "The answer is of type %s and larger than %d bytes, which is as much as is read.", kind, s.o.Limits.Body)
		return s.finish(c, a, appendText([]byte(`{"content":[`), text), "", text)
	}
	if !httpio.Sendable(kind) {
		kind = httpio.Bytes
	}
	about := fmt.Appendf(nil, "The answer is of type %s and has %d bytes.", kind, len(a.body))
	data := base64.StdEncoding.EncodeToString(a.body)
	group, _, _ := strings.Cut(kind, "/")
	out := []byte(`{"content":[`)
	if group == "image" || group == "audio" {
		out = append(out, `{"type":"`+group+`","data":"`+data+`","mimeType":`...)
		return s.finish(c, a, append(rawjson.AppendString(out, kind), '}'), "", about)
	}
	out = append(out, `{"type":"resource","resource":{"uri":`...)
	out = rawjson.AppendString(out, "rest://"+s.name()+p.path)
	out = append(out, `,"mimeType":`...)
	out = rawjson.AppendString(out, kind)
	return s.finish(c, a, append(out, `,"blob":"`+data+`"}}`...), "", about)
}

// streamResult returns the result of a stream.
func (s *Source) streamResult(c *Call, a *answer) []byte {
	if !c.shapes() {
		return s.textResult(c, a)
	}
	// For paths, the parts are the items of an array.
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
			all = rawjson.AppendString(all, string(line))
		}
	}
	whole := *a
	whole.more = false // each part that arrived is complete
	return s.jsonResult(c, append(all, ']'), &whole)
}
