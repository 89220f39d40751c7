package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// Another process continues a connection (S-033): in the same session of the server's,
// without a handshake, and with ids that the one before has not used. Nobody ends the
// session but who has it at last.
func TestUpstreamCarry(t *testing.T) {
	var ended atomic.Bool
	s := newScript(t, &script{session: "s", post: func(w http.ResponseWriter, r *http.Request, id string) {
		if ended.Load() || r.Header.Get("Mcp-Session-Id") != "s" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		plainly(w, id, "{}")
	}})
	taken := 0
	took := func() (all []string) {
		requests := s.requests()
		for _, r := range requests[taken:] {
			if r.http != http.MethodGet { // which comes at any time
				all = append(all, strings.TrimSpace(r.line()+" "+gjson.Get(r.body, "id").Raw))
			}
		}
		taken = len(requests)
		return all
	}
	u := adapter(t, s.URL, nil, conn.Options{})
	up, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	carry := up.(bridge.Resumable).ResumeData()
	up.(bridge.Resumable).Detach()
	_ = up.Close(t.Context())
	if got := took(); !slices.Equal(got, []string{"POST initialize 1", "POST notifications/initialized"}) {
		t.Errorf("the server was sent %q", got)
	}
	other := adapter(t, s.URL, nil, conn.Options{})
	rest := &adaptertest.Client{}
	again, err := other.Resume(t.Context(), adaptertest.Caller(""), rest, carry, 2<<32)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Server(); got.Revision != "2025-11-25" || string(got.Capabilities) != "{}" || string(got.Result) != fmt.Sprintf(agreed, "2025-11-25") {
		t.Errorf("the server is %+v", got)
	}
	adaptertest.Call(t.Context(), t, again, nil, ask).Result(t)
	if string(again.(bridge.Resumable).ResumeData()) != string(carry) {
		t.Error("who has taken over hands something else on")
	}
	_ = again.Close(t.Context())
	if got := took(); !slices.Equal(got, []string{"POST tools/call 8589934593", "DELETE"}) {
		t.Errorf("the server was sent %q", got)
	}
	ended.Store(true)
	late, err := other.Resume(t.Context(), adaptertest.Caller(""), rest, carry, 3<<32)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close(context.Background())
	if o := adaptertest.Call(t.Context(), t, late, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
		t.Errorf("a call in a session that the server has forgotten = %+v", o)
	}
	for _, bad := range []string{``, `{}`, `{"session":"a b","server":{"protocolVersion":"2025-06-18"}}`, `{"session":"x","server":{}}`, `{"session":"x","server":{"protocolVersion":"2026-07-28"}}`, `{"session":"","server":{"protocolVersion":"2025-06-18"}}`} {
		if up, err := other.Resume(t.Context(), adaptertest.Caller(""), rest, []byte(bad), 1); err == nil {
			t.Errorf("Resume(%s) succeeded", bad)
			_ = up.Close(t.Context())
		}
	}
}
