package streamable

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// announcer is a server that announces something while it handles
// notifications/initialized, and drops it if no stream is open.
type announcer struct {
	*script
	// before and after say what a GET gets before and after notifications/initialized: a status, "stream", or "hang",
	// a stream that begins with its first event.
	before, after string

	mu              sync.Mutex // guards the rest
	ready           bool       // notifications/initialized was received
	news            chan struct{}
	gets, now, most int // GETs in all, in flight, and at most in flight
}

func newAnnouncer(before, after string) *announcer {
	a := &announcer{script: &script{session: "s"}, before: before, after: after}
	a.script.get, a.script.note = a.get, a.note
	return a
}

func (a *announcer) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.gets++
	a.now++
	a.most = max(a.most, a.now)
	how, news := a.before, make(chan struct{})
	if a.ready {
		how = a.after
	}
	status, _ := strconv.Atoi(how)
	if status == 0 {
		a.news = news
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.now--
		a.mu.Unlock()
	}()
	if status != 0 {
		http.Error(w, "no", status)
		return
	}
	if how == "stream" {
		events(w)
	}
	select {
	case <-news:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
	flush(w)
	<-r.Context().Done()
}

func (a *announcer) note(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	a.ready = true
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
	a.mu.Unlock()
	w.WriteHeader(202)
}

// What a server announces while it handles notifications/initialized arrives:
// the stream for it is opened before. A server that does not want that has lost
// nothing by it, and one that does not answer keeps nobody waiting for long.
func TestUpstreamListensFirst(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		want                string // the requests
		said                int
		took                time.Duration
	}{
		{"stream", "stream", "stream", "initialize GET initialized", 1, 0},
		{"405", "405", "405", "initialize GET initialized", 0, 0},
		{"400 first", "400", "stream", "initialize GET initialized GET", 0, 0},
		{"404 first", "404", "stream", "initialize GET initialized GET", 0, 0},
		{"503 first", "503", "stream", "initialize GET initialized GET", 0, 0},
		{"400 always", "400", "400", "initialize GET initialized GET", 0, 0},
		{"405 after 400", "400", "405", "initialize GET initialized GET", 0, 0},
		{"hangs until there is an event", "hang", "hang", "initialize GET initialized", 1, listenPatience},
		{"hangs after 400", "400", "hang", "initialize GET initialized GET", 0, listenPatience},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newAnnouncer(c.before, c.after)
			bubble(t, server.script, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				began := time.Now()
				up := open(t, u, rest)
				if took := time.Since(began); took != c.took {
					t.Errorf("the opening took %v, want %v", took, c.took)
				}
				wiretest.Advance(10 * time.Minute)
				synctest.Wait()
				var order []string
				for _, r := range server.requests() {
					order = append(order, strings.TrimPrefix(strings.TrimPrefix(r.line(), "POST "), "notifications/"))
					if session := r.header.Get("Mcp-Session-Id"); r.http == "GET" && session != "s" {
						t.Errorf("a GET in session %q", session)
					}
				}
				if got := strings.Join(order, " "); got != c.want {
					t.Errorf("requests %s, want %s", got, c.want)
				}
				if said := rest.Said(); len(said) != c.said || slices.ContainsFunc(said, func(s string) bool { return !strings.Contains(s, "tools/list_changed") }) {
					t.Errorf("heard %q, want %d announcements", said, c.said)
				}
				if server.most > 1 {
					t.Errorf("%d streams at a time", server.most)
				}
				_ = up.Close(t.Context())
			})
		})
	}
}

// A handshake that the server ends by refusing notifications/initialized leaves
// no stream behind.
func TestUpstreamListensInVain(t *testing.T) {
	for _, how := range []string{"stream", "hang", "400"} {
		server := newAnnouncer(how, how)
		server.script.note = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
		bubble(t, server.script, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
			if _, err := u.Open(t.Context(), adaptertest.Caller(""), rest); err == nil {
				t.Fatal("opened, though the server refuses")
			}
			synctest.Wait()
			server.mu.Lock()
			defer server.mu.Unlock()
			if server.now != 0 || server.gets != 1 {
				t.Errorf("%s: %d streams are left of %d, want 0 of 1", how, server.now, server.gets)
			}
		})
	}
}
