package wire

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a server that records its requests.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex // guards all
	all  []recorded
	then http.HandlerFunc // answers, or nil
}

type recorded struct {
	method, uri, host string
	header            http.Header
	body              []byte
}

func newRecorder(t testing.TB, then http.HandlerFunc) *recorder {
	r := &recorder{then: then}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.all = append(r.all, recorded{q.Method, q.RequestURI, q.Host, q.Header.Clone(), b})
		r.mu.Unlock()
		if r.then != nil {
			q.Body = io.NopCloser(bytes.NewReader(b))
			r.then(w, q)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// requests returns the requests since the last call.
func (r *recorder) requests() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// lines writes a request: its first line, its specific headers, and its body.
func (r recorded) lines() string {
	var b strings.Builder
	b.WriteString(r.method + " " + r.uri)
	var names []string
	for name := range r.header {
		if !slices.Contains([]string{"Accept", "Accept-Encoding", "Content-Length", "User-Agent"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString("\n" + name + ": " + strings.Join(r.header[name], " & "))
	}
	if len(r.body) > 0 {
		b.WriteString("\n\n" + string(r.body))
	}
	return b.String()
}

func newSource(t testing.TB, o Options) *Source {
	t.Helper()
	o.HTTP.Proxy = "none"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newSourceOf makes a source of an API in memory, for a bubble.
func newSourceOf(t testing.TB, o Options, api http.HandlerFunc) *Source {
	t.Helper()
	site := wiretest.NewSite(t, api)
	o.BaseURL = "http://api.example.com"
	o.HTTP.Dial = func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }
	return newSource(t, o)
}

// tool makes a tool of an operation: each of its parameters is an argument of
// the same name.
func tool(method, path string, ps ...*openapi.Parameter) *openapi.Tool {
	op := &openapi.Operation{Method: method, Path: path, Parameters: ps}
	t := &openapi.Tool{Name: "tool", Operation: op}
	for _, p := range ps {
		t.Arguments = append(t.Arguments, openapi.Argument{Name: p.Name, Place: p.In, Parameter: p})
	}
	return t
}

// with gives a tool a body.
func with(t *openapi.Tool, m *openapi.MediaType) *openapi.Tool {
	t.Body = m
	t.Operation.Body = &openapi.Body{Content: []*openapi.MediaType{m}}
	t.Arguments = append(t.Arguments, openapi.Argument{Name: "body", Place: openapi.InBody})
	return t
}

// parameter makes a parameter called c.
func parameter(in openapi.Place, style string, explode bool) *openapi.Parameter {
	return &openapi.Parameter{Name: "c", In: in, Style: style, Explode: explode}
}

// call makes a call that is not cancelled.
func call(t testing.TB, s *Source, c *Call) gjson.Result {
	t.Helper()
	b, err := s.Call(context.Background(), c)
	if err != nil {
		t.Fatalf("Call: %v", err)
	}
	if !gjson.ValidBytes(b) || bytes.ContainsAny(b, "\r\n") {
		t.Fatalf("the result is not JSON on one line: %.300q", b)
	}
	if IsError(b) != gjson.GetBytes(b, "isError").Bool() {
		t.Errorf("IsError does not see whether the result is one of an error: %.300q", b)
	}
	r := gjson.ParseBytes(b)
	if n := len(r.Get("content").Array()); n == 0 {
		t.Fatalf("the result has no content: %s", b)
	}
	return r
}

// said returns the texts of a result.
func said(r gjson.Result) string {
	var out []string
	for _, c := range r.Get("content").Array() {
		if c.Get("type").Str == "text" {
			out = append(out, c.Get("text").Str)
		}
	}
	return strings.Join(out, "\n---\n")
}

func contains(s, part string) bool { return strings.Contains(s, part) }
