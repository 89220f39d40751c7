package wire

import (
	"context"
	"net/http"
	"net/url"
	"path"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Failure is the reason why Read returns no contents. Clients may see the text.
type Failure struct {
	Text    string
	Missing bool // the API says that the resource does not exist
	Refused bool // the arguments are wrong, and nothing was sent
}

func (f *Failure) Error() string { return f.Text }

// failure returns the Failure for an error result of perform.
func failure(p *Plan, a *answer, result []byte) *Failure {
	f := &Failure{Text: gjson.GetBytes(result, "content.0.text").String(), Refused: p == nil}
	f.Missing = a != nil && (a.status == http.StatusNotFound || a.status == http.StatusGone)
	return f
}

// Read makes a call and returns the answer as the contents of the resource uri: a JSON list of
// ResourceContents. The error is a *Failure, or what Call returns.
func (s *Source) Read(ctx context.Context, c *Call, uri string) ([]byte, error) {
	p, a, wrong, err := s.perform(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case wrong != nil:
		return nil, failure(p, a, wrong)
	}
	kind := a.contentType()
	if kind == "" || a.streamed {
		kind = "text/plain"
	}
	if len(a.body) == 0 && !a.more {
		out := rawjson.AppendString([]byte(`[{"uri":`), uri)
		return append(rawjson.AppendString(append(out, `,"mimeType":`...), kind), `,"text":""}]`...), nil
	}
	out := []byte{'['}
	bare := *c
	bare.bare = true
	gjson.GetBytes(s.result(&bare, p, a), "content").ForEach(func(_, block gjson.Result) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = rawjson.AppendString(append(out, `{"uri":`...), uri)
		what, from, typ := "text", block.Get("text"), kind
		switch block.Get("type").Str {
		case "text":
			kind = "text/plain" // the following blocks are notes
		case "resource":
			what, from, typ = "blob", block.Get("resource.blob"), block.Get("resource.mimeType").Str
		default:
			what, from, typ = "blob", block.Get("data"), block.Get("mimeType").Str
		}
		out = rawjson.AppendString(append(out, `,"mimeType":`...), typ)
		out = append(append(append(out, `,"`+what+`":`...), from.Raw...), '}')
		return true
	})
	return append(out, ']'), nil
}

// fetch reads the resource at uri as a file for an argument of c.
func (s *Source) fetch(ctx context.Context, c *Call, uri string) (*param.File, error) {
	read, err := c.Resource(uri)
	if err != nil {
		return nil, err
	}
	p, a, wrong, err := s.perform(ctx, read)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, param.Refuse("it did not arrive in time")
	case err != nil:
		return nil, err
	case wrong != nil:
		return nil, param.Refusal(failure(p, a, wrong).Text)
	case a.more:
		return nil, param.Refuse("it %s", a.why)
	}
	f := &param.File{
		Data: a.body,
		Name: path.Base(read.Tool.Operation.Path),
		Type: a.header.Get("Content-Type"),
	}
	if at, err := url.Parse(uri); err == nil {
		f.Name = path.Base(at.Path)
	}
	if !httpio.Sendable(f.Type) {
		f.Type = ""
	}
	return f, nil
}
