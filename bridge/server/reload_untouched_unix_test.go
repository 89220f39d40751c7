//go:build unix

package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// A client has a stream, a subscription, a call in flight and a process of its own at one server. It is not
// affected while another server is added, changed and removed, and while the same configuration is applied
// again. This holds over each transport and in each era, with calls to a third server all the time, at its own address and
// at that of all servers (O-054).
func TestUntouched(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		goleak.VerifyNone(t, before)
	})
	for _, tc := range []struct{ name, path, offer, revision string }{
		{"Streamable HTTP, a session", "/a/mcp", config.OfferLegacy, "2025-11-25"},
		{"HTTP+SSE", "/a/sse", config.OfferLegacy, "2024-11-05"},
		{"Streamable HTTP, no session", "/a/mcp", config.OfferAll, "2026-07-28"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			release := filepath.Join(t.TempDir(), "release")
			all := func(more ...config.Server) []config.Server {
				s := shell("a", "a", release, "")
				s.Offer = gateway.Offer(tc.offer)
				return append([]config.Server{s, tells("c", "c")}, more...)
			}
			s := newSite(t, nil, all()...)
			var progress, others atomic.Int64
			updated := make(chan struct{}, 100)
			o := &mcp.ClientOptions{
				ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { others.Add(1) },
				ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { others.Add(1) },
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					if r.Params.Progress < float64(progress.Swap(int64(r.Params.Progress))) {
						t.Error("progress goes back")
					}
				},
				ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { updated <- struct{}{} },
			}
			session := s.connectWith(tc.path, "", o)
			if got := session.InitializeResult().ProtocolVersion; got != tc.revision && tc.offer == config.OfferAll {
				t.Fatalf("the client speaks %s, want %s", got, tc.revision)
			}
			pid := who(t.Context(), session, "who")
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "a://b"}); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			answer := ""
			wg.Go(func() {
				p := &mcp.CallToolParams{Name: "slow"}
				p.SetProgressToken("p")
				r, err := session.CallTool(t.Context(), p)
				if err != nil {
					answer = err.Error()
					return
				}
				answer = r.Content[0].(*mcp.TextContent).Text
			})
			load, stop := context.WithCancel(t.Context())
			first := who(t.Context(), s.connect("/c/mcp", "", nil), "who")
			for path, tool := range map[string]string{"/c/mcp": "who", "/c/sse": "who", "/mcp": "c__who", "/sse": "c__who"} {
				other := s.connect(path, "", nil)
				wg.Go(func() {
					for load.Err() == nil {
						if got := who(t.Context(), other, tool); got != first {
							t.Errorf("the third server says %q at %s, and said %q", got, path, first)
							return
						}
					}
				})
			}
			apply := func(servers []config.Server, want int) {
				t.Helper()
				changes, err := s.Apply(s.other(func(c *config.Config) { c.Servers = servers }))
				if err != nil || len(changes) != want {
					t.Fatalf("%v, %v, want %d", changes, err, want)
				}
			}
			await := func(what string, so func() bool) {
				t.Helper()
				t.Log("waiting for " + what)
				for !so() {
					time.Sleep(time.Millisecond)
				}
			}
			await("progress", func() bool { return progress.Load() > 0 })
			others.Store(0)
			lanes := s.Status()[0].Opened
			for n := range scaletest.Of(5, 25) { // of four reloads
				apply(all(tells("b", "1")), 1)
				apply(all(tells("b", fmt.Sprint("2", n))), 1)
				apply(all(), 1)
				apply(all(), 0)
			}
			was := progress.Load()
			await("progress after all that", func() bool { return progress.Load() > was })
			stop()
			if err := os.WriteFile(release, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if !strings.HasPrefix(answer, pid+" ") || !strings.HasSuffix(answer, " yes") || strings.Contains(answer, "yes yes") {
				t.Errorf("the call under way is answered %q, by the process %s that was told once of the subscription", answer, pid)
			}
			if got := s.Status()[0].Opened; got != lanes {
				t.Errorf("%d connections were opened, then %d", lanes, got)
			}
			for len(updated) > 0 { // as clients hear when they begin to listen
				<-updated
			}
			if got := who(t.Context(), session, "tell"); got != pid {
				t.Errorf("the process was %s, and is %s", pid, got)
			}
			<-updated // the subscription goes on
			if n := others.Load(); n > 0 {
				t.Errorf("the client was told %d times that something has changed", n)
			}
		})
	}
}

// Live settings apply to connected clients, with sessions and without: their processes stay, and the next call has the new
// limits (O-053). Another separator or prefix is another name, and nothing else.
func TestApplyLive(t *testing.T) {
	release := filepath.Join(t.TempDir(), "release")
	s := newSite(t, nil, shell("a", "a", release, ""), tells("c", "c"))
	type client struct {
		*mcp.ClientSession
		prefix, pid string
	}
	var clients []client
	for _, at := range []struct{ path, prefix string }{{"/a/mcp", ""}, {"/a/sse", ""}, {"/mcp", "a__"}, {"/sse", "a__"}} {
		session := s.connect(at.path, "", nil)
		clients = append(clients, client{session, at.prefix, who(t.Context(), session, at.prefix+"who")})
	}
	opened := s.Status()[0].Opened
	changes, err := s.Apply(s.other(func(c *config.Config) {
		c.Separator, c.Servers[0].Prefix, c.Servers[1].Prefix = ".", "a.", "c."
		one := &c.Servers[0]
		one.Timeout, one.MaxTimeout = 300*time.Millisecond, 300*time.Millisecond
		one.Limits.Calls, one.Retry.Attempts, one.Breaker.Failures, one.Cache.Lists = 5, 3, 50, time.Minute
		one.Ping, one.Restart, one.MaxChildren, one.StartsPerMinute, one.RestartMaxPause = time.Hour, false, 100, 20, 2*time.Minute
	}))
	if err != nil || len(changes) != 14 {
		t.Fatalf("%v, %v", changes, err)
	}
	for _, change := range changes {
		if change.Effect != config.EffectLive {
			t.Errorf("%s", change)
		}
	}
	for _, c := range clients {
		c.prefix = strings.Replace(c.prefix, "__", ".", 1)
		p := &mcp.CallToolParams{Name: c.prefix + "slow"}
		p.SetProgressToken("p")
		if _, err := c.CallTool(t.Context(), p); err == nil || !strings.Contains(err.Error(), "had no answer within 300ms") {
			t.Errorf("a call after that: %v", err)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		word, _, _ := strings.Cut(c.pid, " ")
		for got := ""; got != c.pid; got = who(t.Context(), c.ClientSession, c.prefix+"who") { // it may be at its last call still
			if strings.HasPrefix(got, word+" ") {
				t.Fatalf("the process %s is another one now: %s", c.pid, got)
			}
		}
		if err := os.Remove(release); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Status()[0].Opened; got != opened {
		t.Errorf("%d connections were opened, then %d", opened, got)
	}
}
