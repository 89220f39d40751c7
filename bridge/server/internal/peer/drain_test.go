package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
)

var discard = slog.New(slog.DiscardHandler)

// An instance that is about to stop answers the others on connections that they do not
// use again, and streams of GETs that it has sent on end: their clients are told when to
// come back. Calls go on (S-070). An instance that has no time left to stop ends what it still serves.
func TestLeave(t *testing.T) {
	release := make(chan struct{})
	p, at := instance(t, "AAAAAAA", []string{secret}, func(_ string, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": hello\n\n")
		_ = http.NewResponseController(w).Flush()
		if r.Method == http.MethodGet {
			<-r.Context().Done()
			return
		}
		select {
		case <-release:
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
		case <-r.Context().Done():
		}
	})
	b, _ := instance(t, "BBBBBBB", []string{secret}, nil)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.forward(at, w, r, version+"s/_/mcp", nil, body)
	}))
	defer front.Close()
	read := func(method, body string) <-chan string {
		r, err := http.NewRequestWithContext(t.Context(), method, front.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		out := make(chan string, 1)
		go func() {
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			out <- string(text)
		}()
		return out
	}
	get, post := read("GET", ""), read("POST", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
	b.Leave()
	await := func(what string, c <-chan string, want string) {
		t.Helper()
		if text := <-c; text != want {
			t.Errorf("%s: %q, want %q", what, text, want)
		}
	}
	await("a GET", get, ": hello\n\nretry: 1000\n\n")
	close(release)
	await("a call", post, ": hello\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	closes := func() string {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+at.Address+version+"s/_/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := b.link(at).http.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.Close {
			return "closes"
		}
		return "stays"
	}
	if got := closes(); got != "stays" {
		t.Errorf("a connection %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody beats here
	p.node.Drain(ctx)
	if got := closes(); got != "closes" {
		t.Errorf("a connection to an instance that stops %s", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+at.Address+version+"s/_/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.link(at).http.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p.Close(ctx)
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a stream to an instance that has stopped ends well: %q", text)
	}
}

// serves reports whether an instance answers a request of a caller for a session, or leaves it to its own handlers.
func serves(ctx context.Context, p *Peers, w *httptest.ResponseRecorder) bool {
	r := httptest.NewRequestWithContext(auth.WithPrincipal(ctx, "alice"), "POST", "/files/mcp", nil)
	return p.Serve(w, r, "files", "an id", false, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
}

// A session of a caller that may not use its server any more, as one whose key was taken away, is
// not taken over (S-083): for the client it does not exist, and the store is not touched.
func TestBarred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		barred, adopted := errors.New("its key was taken away"), 0
		own := &local{
			allowed: func(server, principal string) error {
				if server != "files" || principal != "alice" {
					t.Errorf("asked for %q at %q", principal, server)
				}
				return barred
			},
			adopt: func(string, session.Held) error { adopted++; return nil },
			has:   func(string) bool { return adopted > 0 },
		}
		p, n, records := joined(t, own)
		h := theirs(t, records, session.Held{Record: session.Record{Key: session.Key("an id"), Server: "files", Principal: "alice"}}, true)
		before, err := n.Find(t.Context(), h.Key)
		if err != nil {
			t.Fatal(err)
		}
		asked := func() bool { return serves(t.Context(), p, httptest.NewRecorder()) }
		if asked() || adopted != 0 {
			t.Errorf("it was answered, or taken over %d times", adopted)
		}
		if after, err := n.Find(t.Context(), h.Key); err != nil || after.Owner != before.Owner || after.Epoch != before.Epoch {
			t.Errorf("the store has %+v and %v, before %+v", after, err, before)
		}
		if barred = nil; asked() || adopted != 1 { // it is here now
			t.Errorf("with its key, it was taken over %d times", adopted)
		}
	})
}

// A session that this instance cannot serve now, as it stops or has no room, is not lost: whoever can takes it
// over (S-070).
func TestAdoptRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refusal := range []error{bridge.ErrShutdown, &bridge.Error{Kind: bridge.ErrOverloaded, Public: "no room"}} {
			tries := 0
			own := &local{
				adopt: func(string, session.Held) error {
					if tries++; tries == 1 {
						return refusal
					}
					return nil
				},
				has: func(string) bool { return tries > 1 },
			}
			p, n, records := joined(t, own)
			seen := theirs(t, records, session.Held{Record: session.Record{Key: session.Key("an id"), Server: "files", Principal: "alice"}}, true)
			if got := p.adopt(t.Context(), "an id", seen); got.missing || got.taken || n.Holds(seen.Key) {
				t.Errorf("%v: adopt = %+v", refusal, got)
			}
			if after, err := n.Find(t.Context(), seen.Key); err != nil || after.Owner != "" {
				t.Errorf("%v: the store has %+v, %v", refusal, after, err)
			}
			if serves(t.Context(), p, httptest.NewRecorder()) || tries != 2 {
				t.Errorf("%v: the next request was answered, after %d tries", refusal, tries)
			}
		}
	})
}

// Two requests that find the same session at the same time take it over once (S-013), whether its owner is dead or has
// given it away: the second has looked before the first has taken it, and comes to take it after.
func TestAdoptOnce(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			adopted := 0
			p, _, records := joined(t, &local{adopt: func(string, session.Held) error { adopted++; return nil }})
			seen := theirs(t, records, session.Held{Record: session.Record{Key: session.Key("an id"), Server: "files"}}, away)
			for range 2 {
				if got := p.adopt(t.Context(), "an id", seen); !got.taken {
					t.Errorf("given away: %t; adopt = %+v", away, got)
				}
			}
			if adopted != 1 {
				t.Errorf("given away: %t; it was taken over %d times", away, adopted)
			}
		})
	}
}

// While an instance stops, a call waits until its session is given away; what a call in flight may need does not.
func TestGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		p, _, _ := joined(t, &local{has: func(string) bool { looks++; return looks < 3 }})
		if p.givenAway(t.Context(), "an id", []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)) || p.givenAway(t.Context(), "an id", []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)) {
			t.Error("a session that is here was given away")
		}
		if !p.givenAway(t.Context(), "an id", []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)) {
			t.Error("a session that was given away was not")
		}
	})
}

// Nobody waits for a session that is handed over, or taken over, for a client that is gone.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, taken := range []bool{false, true} {
			gone, leave := context.WithCancel(t.Context())
			leave()
			looks := 0
			p, n, _ := joined(t, &local{has: func(string) bool { looks++; return looks > 100 }})
			key := session.Key("an id")
			if taken {
				p.adopting[key] = make(chan struct{})
			} else if _, err := n.Put(t.Context(), session.Held{Record: session.Record{Key: key, Server: "files", Principal: "alice"}}); err != nil {
				t.Fatal(err)
			}
			a := httptest.NewRecorder()
			if !serves(gone, p, a) || a.Code != http.StatusServiceUnavailable || looks > 1 {
				t.Errorf("taken over: %t: answered %d after %d looks", taken, a.Code, looks)
			}
		}
	})
}
