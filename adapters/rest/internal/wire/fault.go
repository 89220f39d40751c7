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
	// maxFault is how many bytes of an error's body a result shows.
	maxFault = 4 << 10
	// maxDetails is how many details of problems a result lists.
	maxDetails = 20
)

// declined makes the result of an error status: the status and the request first, then the message
// of the API.
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
			return s.head([]byte(told), maxFault) // a secret may have another spelling in it
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

// problem writes a problem (RFC 9457), or the similar formats of other APIs, as lines. Other JSON
// stays as it is.
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

// detail writes one of several details.
func detail(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	return string(rawjson.Compact([]byte(v.Raw)))
}
