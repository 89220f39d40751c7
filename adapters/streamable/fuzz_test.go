package streamable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// once counts the answers to a request.
type once struct {
	*httptest.ResponseRecorder
	headers int
}

func (o *once) WriteHeader(status int) {
	o.headers++
	o.ResponseRecorder.WriteHeader(status)
}

func (o *once) Write(b []byte) (int, error) {
	if o.headers == 0 {
		o.WriteHeader(http.StatusOK)
	}
	return o.ResponseRecorder.Write(b)
}

// Whatever is POSTed gets exactly one HTTP answer, and an error about a request has the request's id.
func FuzzPost(f *testing.F) {
	const good = "application/json, text/event-stream"
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, call("2", "echo", `{"a":1}`), call(`"x"`, "steps", `{"n":2}`), call("1", "ask", "{}"), call("1", "none", "{}"),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`, `[]`, `[{"jsonrpc":"2.0","id":1,"method":"ping"},5,{}]`, `[[[[`, `{"id":7}`, "\xff", "",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		fmt.Sprintf(initialize, "2025-03-26"),
	} {
		f.Add(body, "application/json", good, "2025-03-26", true)
		f.Add(body, "application/json", good, "", false)
	}
	f.Add("{}", "text/plain", "text/html", "2026-07-28", true)
	s := &wiretest.Server{}
	r := newRig(f, s, gateway.Options{}, Options{})
	c := r.begin("2025-03-26")
	f.Fuzz(func(t *testing.T, body, kind, accept, revision string, known bool) {
		if strings.Contains(body, "ask") || strings.Contains(body, "wait") || strings.Contains(body, "late") || strings.Contains(body, "large") || strings.Contains(body, "steps") && len(body) > 200 || strings.Contains(body, `\u`) {
			return // these tools take their time, on purpose
		}
		req := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
		req.Header["Content-Type"], req.Header["Accept"] = []string{kind}, []string{accept}
		if revision != "" {
			req.Header[versionHeader] = []string{revision}
		}
		if known {
			req.Header[sessionHeader] = []string{c.id}
		}
		o := &once{ResponseRecorder: httptest.NewRecorder()}
		r.d.Serve("fake", o, req)
		if id := o.Header().Get("Mcp-Session-Id"); id != "" {
			end := httptest.NewRequest("DELETE", "/mcp", nil)
			end.Header[sessionHeader] = []string{id}
			r.d.Serve("fake", httptest.NewRecorder(), end)
		}
		got := o.Body.Bytes()
		if o.headers != 1 {
			t.Fatalf("POST %q has %d answers", body, o.headers)
		}
		switch kind := o.Header().Get("Content-Type"); {
		case o.Code == http.StatusAccepted && len(got) > 0:
			t.Fatalf("POST %q = 202 with %q", body, got)
		case kind == "application/json" && !json.Valid(got):
			t.Fatalf("POST %q = %d %q, which is not JSON", body, o.Code, got)
		}
		m, err := jsonrpc.Parse([]byte(body))
		if err != nil || !m.IsRequest() || o.Code == http.StatusUnsupportedMediaType || o.Code == http.StatusNotAcceptable {
			return // those are refused before their body is read
		}
		if want := append([]byte(`"id":`), m.ID...); !bytes.Contains(got, want) {
			t.Fatalf("POST %q = %d %q, without its id", body, o.Code, got)
		}
	})
}

// Whatever Last-Event-ID says, a GET gets one answer and never another session's events.
func FuzzLastEventID(f *testing.F) {
	r := newRig(f, &wiretest.Server{}, gateway.Options{}, Options{})
	mine, theirs := r.begin("2025-06-18"), r.begin("2025-06-18")
	for _, c := range []*client{mine, theirs} {
		for _, e := range c.call("1", "steps", `{"n":3}`).Wait().Events() {
			f.Add(e.ID)
		}
	}
	secret := theirs.call("1", "steps", `{"n":3}`).Wait().Events()[0].ID
	f.Add(secret)
	for _, id := range []string{"", "p", "g-1", "gAAAA-0", "p-1", "\x00", "x-99999999999999999999", "-", "p-\r\nid: 1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, last string) {
		if last == "" || strings.HasPrefix(last, getPrefix) {
			return // a live stream, which does not end
		}
		req := httptest.NewRequest("GET", "/mcp", nil)
		req.Header[sessionHeader], req.Header[resumeHeader] = []string{mine.id}, []string{last}
		o := &once{ResponseRecorder: httptest.NewRecorder()}
		r.d.Serve("fake", o, req)
		if o.headers != 1 || o.Code != http.StatusOK && o.Code != http.StatusBadRequest && o.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET behind %q = %d, %d answers", last, o.Code, o.headers)
		}
		if last == secret && o.Code == http.StatusOK {
			t.Errorf("GET behind %q of another session = %q", last, o.Body)
		}
	})
}
