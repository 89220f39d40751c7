package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The clients of this file speak HTTP without an SDK, because they do what an
// SDK would not: use one id for everything, leave in the middle of a call,
// send too much.

// rawClient is a session over Streamable HTTP in which every request has id 1.
type rawClient struct {
	url     string
	session string
}

// reply is what came back for one POST.
type reply struct {
	status int
	header http.Header
	answer rawAnswer
	body   string // of a reply that holds no answer
}

type rawAnswer struct {
	ID     json.RawMessage `json:"id"`
	Result *struct {
		Content []struct{ Text string } `json:"content"`
		IsError bool                    `json:"isError"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (r *reply) String() string {
	if r.answer.Error != nil {
		return fmt.Sprintf("status %d, error %d %s", r.status, r.answer.Error.Code, r.answer.Error.Message)
	}
	return fmt.Sprintf("status %d %s", r.status, brief(r.body))
}

// text is the content of a tool's result, and whether there is one.
func (r *reply) text() (string, bool) {
	if r.answer.Result == nil || len(r.answer.Result.Content) == 0 {
		return "", false
	}
	return r.answer.Result.Content[0].Text, true
}

var rawHTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// ownClient is the key under which a context has an HTTP client of its own. Who
// breaks requests off needs one: with shared connections net/http may tell
// another request, which reuses one just then, that its context has ended.
type ownClient struct{}

func withOwnClient(ctx context.Context) (own context.Context, done func()) {
	c := &http.Client{Transport: &http.Transport{}}
	return context.WithValue(ctx, ownClient{}, c), c.CloseIdleConnections
}

func clientOf(ctx context.Context) *http.Client {
	if c, ok := ctx.Value(ownClient{}).(*http.Client); ok {
		return c
	}
	return rawHTTP
}

func (r *rawClient) post(ctx context.Context, body []byte) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if r.session != "" {
		req.Header.Set("Mcp-Session-Id", r.session)
		req.Header.Set("MCP-Protocol-Version", legacy)
	}
	resp, err := clientOf(ctx).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	one := &reply{status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return one, one.fromStream(resp.Body)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &one.answer) != nil {
		one.body = string(text)
	}
	return one, nil
}

// fromStream reads events up to the answer.
func (r *reply) fromStream(body io.Reader) error {
	for data, err := range rawEvents(body) {
		if err != nil {
			return err
		}
		var a rawAnswer
		if err := json.Unmarshal([]byte(data.data), &a); err != nil {
			return fmt.Errorf("event %q: %w", data.data, err)
		}
		if a.Result != nil || a.Error != nil {
			r.answer = a
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}

type rawEvent struct{ name, data string }

// rawEvents reads server-sent events that have data.
func rawEvents(body io.Reader) func(yield func(rawEvent, error) bool) {
	return func(yield func(rawEvent, error) bool) {
		lines := bufio.NewReaderSize(body, 1<<16)
		var r rawEvent
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if err != io.EOF {
					yield(rawEvent{}, err)
				}
				return
			}
			line = strings.TrimRight(line, "\r\n")
			if v, ok := strings.CutPrefix(line, "data:"); ok {
				r.data += strings.TrimPrefix(v, " ")
			} else if v, ok := strings.CutPrefix(line, "event:"); ok {
				r.name = strings.TrimSpace(v)
			} else if line == "" {
				if r.data != "" && !yield(r, nil) {
					return
				}
				r = rawEvent{}
			}
		}
	}
}

const (
	rawInitialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacy + `","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`
	rawInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// openRaw does the handshake.
func openRaw(ctx context.Context, base string) (*rawClient, error) {
	c := &rawClient{url: base + "/mcp"}
	r, err := c.post(ctx, []byte(rawInitialize))
	if err != nil {
		return nil, err
	}
	if r.answer.Result == nil {
		return nil, fmt.Errorf("initialize: %v", r)
	}
	c.session = r.header.Get("Mcp-Session-Id")
	if c.session == "" {
		return nil, fmt.Errorf("initialize: no session id")
	}
	if r, err = c.post(ctx, []byte(rawInitialized)); err != nil {
		return nil, err
	}
	if r.status != http.StatusAccepted {
		return nil, fmt.Errorf("initialized: %v", r)
	}
	return c, nil
}

func mustOpenRaw(t *testing.T, base string) *rawClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := openRaw(ctx, base)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rawCall(tool string, args map[string]any) []byte {
	text, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func (r *rawClient) tool(ctx context.Context, tool string, args map[string]any) (*reply, error) {
	return r.post(ctx, rawCall(tool, args))
}

// must calls a tool that has to answer with text.
func (r *rawClient) must(t *testing.T, tool string, args map[string]any) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reply, err := r.tool(ctx, tool, args)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text, ok := reply.text()
	if !ok {
		t.Fatalf("%s: %v", tool, reply)
	}
	return text
}

func (r *rawClient) end(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, r.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Mcp-Session-Id", r.session)
	resp, err := clientOf(ctx).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// rawSSE is a session over HTTP+SSE.
type rawSSE struct {
	stream   io.Closer
	endpoint string
	events   chan string // closed when the stream ends
}

func openSSE(ctx context.Context, base string) (*rawSSE, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/sse", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := clientOf(ctx).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET /sse: %s", resp.Status)
	}
	r := &rawSSE{stream: resp.Body, events: make(chan string, 16)}
	named := make(chan string, 1)
	go func() { // ends with the stream
		defer close(r.events)
		for e, err := range rawEvents(resp.Body) {
			if err != nil {
				return
			}
			if e.name == "endpoint" {
				named <- e.data
				continue
			}
			r.events <- e.data
		}
	}()
	select {
	case path := <-named:
		at, err := req.URL.Parse(path)
		if err != nil {
			return nil, err
		}
		r.endpoint = at.String()
	case <-ctx.Done():
		resp.Body.Close()
		return nil, ctx.Err()
	}
	for _, m := range []string{rawInitialize, rawInitialized} {
		if err := r.post(ctx, m); err != nil {
			resp.Body.Close()
			return nil, err
		}
		if m == rawInitialize {
			if _, err := r.next(ctx); err != nil {
				resp.Body.Close()
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *rawSSE) post(ctx context.Context, m string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint, strings.NewReader(m))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := clientOf(ctx).Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("POST %s: %s", (&url.URL{Path: req.URL.Path}).Path, resp.Status)
	}
	return nil
}

func (r *rawSSE) next(ctx context.Context) (string, error) {
	select {
	case e, ok := <-r.events:
		if !ok {
			return "", io.ErrUnexpectedEOF
		}
		return e, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
