package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/dialogue"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// dialoguePipe is a client of stdio.
type dialoguePipe struct {
	c    *dialogue.Client
	to   io.WriteCloser
	over chan struct{}
}

func (w *dialoguePipe) read(from io.Reader) {
	defer close(w.over)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		w.c.Hear(strings.TrimSuffix(line, "\n"))
	}
}

// Send implements dialogue.Wire.
func (w *dialoguePipe) Send(line string) { _, _ = io.WriteString(w.to, line+"\n") }

// Cancel implements dialogue.Wire.
func (w *dialoguePipe) Cancel(id string) {
	w.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
}

// End implements dialogue.Wire.
func (w *dialoguePipe) End() {
	_ = w.to.Close()
	<-w.over
}

// dialogueHTTP is a client of HTTP+SSE or Streamable HTTP.
type dialogueHTTP struct {
	c      *dialogue.Client
	client *http.Client
	modern bool
	path   string // to which messages are sent
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the rest
	session string
	cancels map[string]context.CancelFunc // by raw id of the request; "" is the standing stream
}

func newDialogueHTTP(c *dialogue.Client, site *wiretest.Site, path string) *dialogueHTTP {
	return &dialogueHTTP{c: c, client: site.Client(), modern: c.Caller.Modern(), path: path, cancels: map[string]context.CancelFunc{}}
}

func (b *dialogueBridge) streamable(c *dialogue.Client) dialogue.Wire {
	w := newDialogueHTTP(c, b.site, "/mcp")
	b.close = append([]func(){w.End}, b.close...)
	return w
}

func (b *dialogueBridge) sse(c *dialogue.Client) dialogue.Wire {
	w := newDialogueHTTP(c, b.site, "")
	named := make(chan string, 1)
	w.begin("", http.MethodGet, "", func(e rawEvent) {
		if e.name == "endpoint" {
			named <- e.data
			return
		}
		c.Hear(e.data)
	})
	w.path = <-named
	b.close = append([]func(){w.End}, b.close...)
	return w
}

// begin makes a request in the background. hear gets the events of its response.
func (w *dialogueHTTP) begin(id, method, body string, hear func(rawEvent)) {
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:8808"+w.path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	if id != "" || method == http.MethodGet {
		w.cancels[id] = cancel
	}
	w.head(r, body)
	w.mu.Unlock()
	w.wg.Go(func() {
		defer cancel()
		res, err := w.client.Do(r)
		if err != nil {
			return // cancelled
		}
		defer res.Body.Close()
		w.take(res, method, hear)
	})
}

// head sets the headers of a request. The caller holds w.mu.
func (w *dialogueHTTP) head(r *http.Request, body string) {
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Principal", w.c.Caller.Principal)
	switch {
	case w.modern:
		m, err := jsonrpc.Parse([]byte(body))
		if err != nil {
			panic(fmt.Sprintf("%s: %v", body, err)) // a dialogue has messages only
		}
		r.Header.Set("Mcp-Protocol-Version", w.c.Caller.Revision)
		r.Header.Set("Mcp-Method", m.Method)
		if name := m.Name() + m.URI() + gjson.Get(body, "params.taskId").Str; name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	case w.session != "":
		r.Header.Set("Mcp-Session-Id", w.session)
		r.Header.Set("Mcp-Protocol-Version", w.c.Caller.Revision)
	}
}

// take reads a response. The first with a session opens the standing stream.
func (w *dialogueHTTP) take(res *http.Response, method string, hear func(rawEvent)) {
	if id := res.Header.Get("Mcp-Session-Id"); id != "" && method == http.MethodPost {
		w.mu.Lock()
		first := w.session == ""
		w.session = id
		w.mu.Unlock()
		if first {
			defer w.begin("", http.MethodGet, "", hear)
		}
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		for e := range rawEvents(res.Body) {
			if e.data != "" {
				hear(e)
			}
		}
		return
	}
	if text, _ := io.ReadAll(res.Body); gjson.ValidBytes(text) && len(text) > 0 {
		hear(rawEvent{data: string(text)})
	}
}

// Send implements dialogue.Wire.
func (w *dialogueHTTP) Send(line string) {
	m := gjson.Parse(line)
	id := ""
	if m.Get("method").Exists() {
		id = m.Get("id").Raw
	}
	w.begin(id, http.MethodPost, line, func(e rawEvent) { w.c.Hear(e.data) })
}

// Cancel implements dialogue.Wire.
func (w *dialogueHTTP) Cancel(id string) {
	if !w.modern {
		w.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancels[id]()
}

// End implements dialogue.Wire.
func (w *dialogueHTTP) End() {
	w.mu.Lock()
	if w.session != "" {
		r, _ := http.NewRequest(http.MethodDelete, "http://127.0.0.1:8808"+w.path, nil)
		w.head(r, "")
		w.session = ""
		w.mu.Unlock()
		if res, err := w.client.Do(r); err == nil {
			_ = res.Body.Close()
		}
		w.mu.Lock()
	}
	for _, cancel := range w.cancels {
		cancel()
	}
	w.mu.Unlock()
	w.wg.Wait()
}
