package wire

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// alwaysShown are headers that results show even if the document does not declare them. They name
// the place of the answer, and the time of the next try.
var alwaysShown = []string{"Location", "Operation-Location", "Retry-After"}

// shownHeaders returns the headers that a result shows, as lines sorted by name. These are the
// headers that the document declares, alwaysShown, and the link to the next page.
func (s *Source) shownHeaders(c *Call, a *answer) []string {
	if a == nil || c.bare || len(a.header) == 0 {
		return nil
	}
	var names []string
	add := func(name string) {
		if a.header[name] != nil && showable(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range alwaysShown {
		add(name)
	}
	if r := response(c.Tool.Operation, a.status); r != nil {
		for _, name := range r.Headers {
			add(name)
		}
	}
	for _, v := range a.header["Link"] {
		if v = strings.ToLower(v); strings.Contains(v, `rel="next"`) || strings.Contains(v, "rel=next") {
			add("Link")
		}
	}
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		for i, v := range a.header[name] {
			if i == maxValues {
				break
			}
			lines = append(lines, name+": "+s.head([]byte(v), maxLine))
		}
	}
	return lines
}

// maxValues bounds the values of one header that a result shows.
const maxValues = 5

// response returns the document's response for a status, such as 404, 4XX or the default, or nil.
func response(op *openapi.Operation, status int) *openapi.Response {
	exact := string([]byte{byte('0' + status/100%10), byte('0' + status/10%10), byte('0' + status%10)})
	for _, want := range []string{exact, exact[:1] + "XX", "DEFAULT"} {
		for i := range op.Responses {
			if r := &op.Responses[i]; strings.EqualFold(r.Status, want) {
				return r
			}
		}
	}
	return nil
}

// showable reports whether a result may show a header. Cookies, probable secrets, and headers about
// the connection, caches, limits or logs are not shown.
func showable(name string) bool {
	switch name {
	case "Content-Type", "Cache-Control", "Expires", "Vary", "Age", "Date", "Server", "Via", "Strict-Transport-Security":
		return false
	}
	low := strings.ToLower(name)
	return !sanitize.MayNameSecret(name) && !openapi.OfConnection(name) && !strings.HasPrefix(low, "access-control-") && !slices.ContainsFunc(
		[]string{"ratelimit", "rate-limit", "request-id", "requestid", "correlation", "trace"}, func(word string) bool { return strings.Contains(low, word) })
}

// appendHeaders appends a block with the shown headers, if there are any.
func (s *Source) appendHeaders(dst []byte, c *Call, a *answer) []byte {
	lines := s.shownHeaders(c, a)
	if len(lines) == 0 {
		return dst
	}
	return appendText(append(dst, ','), []byte("Headers of the answer:\n"+strings.Join(lines, "\n")))
}
