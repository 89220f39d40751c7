package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	// maxFault bounds the text of an error's body that a result shows, in bytes.
	maxFault = 4 << 10
	// maxDetails bounds the details of a problem that a result lists.
	maxDetails = 20
)

// declined returns the result of an answer that is an error: its status and the request, then the
// message of the API.
func (s *Source) declined(p *Plan, a *answer) []byte {
	lines := []string{s.statusLine(a.status, p)}
	if said := s.errorMessage(&p.settings, a); said != "" {
		lines = append(lines, said)
	}
	if way := s.reach.Wanted(p.op); a.status == http.StatusUnauthorized && way != "" && !p.authorized() {
		lines = append(lines, "The operation needs credentials, and the bridge has none for it. Its operator can set "+way+".")
	}
	if told, ok := remote.RetryAfter(a.header); ok {
		lines = append(lines, "Try again in "+seconds(told)+".")
	}
	if at := a.header.Get("Location"); at != "" && a.status < 400 {
		lines = append(lines, "Location: "+s.head([]byte(at), maxLine))
	}
	return errorResult(s.mask([]byte(strings.Join(lines, "\n"))))
}

var htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>\s*(.*?)\s*</title>`)

// errorMessage returns the message in the body of an error.
func (s *Source) errorMessage(t *Settings, a *answer) string {
	body := bytes.TrimSpace(decoded(a))
	kind := a.contentType()
	switch {
	case len(body) == 0:
		return ""
	case httpio.IsJSON(kind) || looksJSON(body):
		if usable(body, &answer{}) {
			body = s.mask(body)
			told := cmp.Or(t.failureMessage(body), problem(body))
			return s.head([]byte(told), maxFault) // masks again: unescaped, a secret has another spelling
		}
	case kind == "text/html":
		if m := htmlTitle.FindSubmatch(body); m != nil {
			return s.head(m[1], maxLine)
		}
	}
	if kind != "" && !isText(kind) && !looksJSON(body) {
		return fmt.Sprintf("(%d bytes of %s)", len(a.body), s.head([]byte(kind), 100))
	}
	return s.head(body, maxFault)
}

// problem returns the texts of a problem (RFC 9457), or of a similar format, as lines. It returns other
// JSON whole.
func problem(body []byte) string {
	r := gjson.ParseBytes(body)
	if inner := r.Get("error"); inner.IsObject() && !r.Get("title").Exists() {
		r = inner
	}
	var lines []string
	add := func(text string) {
		text = strings.TrimSpace(text)
		if text != "" && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	for _, name := range []string{"title", "message", "error", "detail", "error_description", "description", "reason", "Message", "msg"} {
		if v := r.Get(name); v.Type == gjson.String {
			add(v.Str)
		}
	}
	if len(lines) == 0 {
		return string(rawjson.Compact(body))
	}
	if code := r.Get("code"); code.Type == gjson.String || code.Type == gjson.Number {
		add("code: " + code.String())
	}
	for _, name := range []string{"errors", "details", "detail", "invalid-params", "invalid_params", "violations", "fields"} {
		v := r.Get(gjson.Escape(name))
		switch {
		case v.IsArray():
			for i, one := range v.Array() {
				if i == maxDetails {
					add(fmt.Sprintf("(%d in all)", len(v.Array())))
					break
				}
				add("- " + detail(one))
			}
		case v.IsObject():
			add(name + ": " + string(rawjson.Compact([]byte(v.Raw))))
		}
	}
	return strings.Join(lines, "\n")
}

// detail returns one detail of a problem as text.
func detail(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	return string(rawjson.Compact([]byte(v.Raw)))
}
