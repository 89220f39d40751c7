package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// Another process continues a connection (S-033): in the same session of the server's,
// without a handshake, and with ids that the one before has not used. Nobody ends the
// session but who has it at last.
func TestUpstreamCarry(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := sdkServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			m := adaptertest.Parse(t, string(body))
			what = m.Method + " " + string(m.ID)
		}
		mu.Lock()
		seen = append(seen, strings.TrimSpace(what))
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(site.Close)
	took := func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := slices.DeleteFunc(seen, func(what string) bool { return what == http.MethodGet }) // at any time
		seen = nil
		return all
	}
	u := adapter(t, site.URL, nil, conn.Options{})
	up, err := u.Open(t.Context(), sdkCaller(), &adaptertest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	carry := up.(bridge.Resumable).ResumeData()
	up.(bridge.Resumable).Detach()
	_ = up.Close(t.Context())
	if got := took(); !slices.Equal(got, []string{"initialize 1", "notifications/initialized"}) {
		t.Errorf("the server was sent %q", got)
	}
	other := adapter(t, site.URL, nil, conn.Options{})
	rest := &adaptertest.Client{}
	again, err := other.Resume(t.Context(), sdkCaller(), rest, carry, 2<<32)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Server(); got.Revision != "2025-11-25" || !strings.Contains(string(got.Capabilities), "tools") || !strings.Contains(string(got.Result), `"sdk"`) {
		t.Errorf("the server is %+v", got)
	}
	if got := adaptertest.Call(t.Context(), t, again, nil, useTool("echo", `{"n":7}`)).Result(t); !strings.Contains(got, "7") {
		t.Errorf("echo = %s", got)
	}
	if string(again.(bridge.Resumable).ResumeData()) != string(carry) {
		t.Error("who has taken over hands something else on")
	}
	_ = again.Close(t.Context())
	if got := took(); !slices.Equal(got, []string{"tools/call 8589934593", "DELETE"}) {
		t.Errorf("the server was sent %q", got)
	}
	// The server has forgotten the session by now.
	late, err := other.Resume(t.Context(), sdkCaller(), rest, carry, 3<<32)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close(context.Background())
	if o := adaptertest.Call(t.Context(), t, late, nil, useTool("echo", `{}`)); !errors.Is(o.Err, bridge.ErrUnsent) {
		t.Errorf("a call in a session that the server has forgotten = %+v", o)
	}
	for _, bad := range []string{``, `{}`, `{"session":"a b","server":{"protocolVersion":"2025-06-18"}}`, `{"session":"x","server":{}}`, `{"session":"x","server":{"protocolVersion":"2026-07-28"}}`, `{"session":"","server":{"protocolVersion":"2025-06-18"}}`} {
		if up, err := other.Resume(t.Context(), sdkCaller(), rest, []byte(bad), 1); err == nil {
			t.Errorf("Resume(%s) succeeded", bad)
			_ = up.Close(t.Context())
		}
	}
}
