package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of more than 32 characters"

// alone is a registry with one instance in it.
type alone struct{}

func (alone) Beat(_ context.Context, m cluster.Member, _ time.Duration) (cluster.Seen, error) {
	return cluster.Seen{Members: []cluster.Member{m}, Run: "r"}, nil
}
func (alone) Present(context.Context, string) (bool, error) { return true, nil }
func (alone) Leave(context.Context, string) error           { return nil }

// local has the sessions of an instance. A nil function refuses nothing.
type local struct {
	forward []string
	allowed func(server, principal string) error
	has     func(id string) bool
	adopt   func(id string, h session.Held) error
	mcp     func(server string, w http.ResponseWriter, r *http.Request)
}

func (l *local) parts(n *cluster.Node) Parts {
	return Parts{Node: n, Gateway: l, Sessions: l, Streams: l}
}
func (l *local) Forwards() []string            { return l.forward }
func (l *local) Portable(*session.Record) bool { return true }
func (l *local) Allowed(server, principal string) error {
	if l.allowed == nil {
		return nil
	}
	return l.allowed(server, principal)
}
func (l *local) Has(id string) bool                                            { return l.has(id) }
func (l *local) Adopt(id string, h session.Held) error                         { return l.adopt(id, h) }
func (l *local) Serve(server string, w http.ResponseWriter, r *http.Request)   { l.mcp(server, w, r) }
func (l *local) Message(server string, w http.ResponseWriter, r *http.Request) { l.mcp(server, w, r) }

// instance starts an instance that serves its peers with mcp, and returns it as a member.
func instance(t *testing.T, id string, secrets []string, mcp func(server string, w http.ResponseWriter, r *http.Request)) (*Peers, cluster.Member) {
	t.Helper()
	return instanceAt(t, nil, id, 6*time.Second, secrets, mcp)
}

// instanceAt is instance at a listener, if it is not nil.
func instanceAt(t *testing.T, l net.Listener, id string, lease time.Duration, secrets []string, mcp func(server string, w http.ResponseWriter, r *http.Request)) (*Peers, cluster.Member) {
	t.Helper()
	p, err := New(Options{ID: id, Secrets: secrets, Lease: lease, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p.connect = time.Hour // a busy machine may take long for a handshake
	own := &local{forward: []string{"X-Tenant", "Bridge-Principal"}, mcp: mcp}
	p.Join(own.parts(cluster.New(cluster.Options{Self: cluster.Member{ID: id}, Store: session.NewMemory(10).As(id), Registry: alone{}, Peers: p, Lease: lease, Log: slog.New(slog.DiscardHandler)})))
	if l == nil {
		if l, err = Listen(t.Context(), "127.0.0.1:0", lease); err != nil {
			t.Fatal(err)
		}
	}
	go p.Listen(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
	return p, cluster.Member{ID: id, Address: l.Addr().String()}
}

// joined starts an instance that is alone, with its own sessions, and a store that has those of others too.
func joined(t *testing.T, own *local) (*Peers, *cluster.Node, *session.Memory) {
	t.Helper()
	const id = "AAAAAAA"
	p, err := New(Options{ID: id, Secrets: []string{secret}, Lease: 6 * time.Second, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	records := session.NewMemory(10)
	n := cluster.New(cluster.Options{Self: cluster.Member{ID: id}, Store: records.As(id), Registry: alone{}, Peers: p, Lease: 6 * time.Second, Life: time.Hour, MaxSessions: 10, Log: discard})
	p.Join(own.parts(n))
	n.Start("127.0.0.1:1")
	t.Cleanup(func() { n.Close(context.Background()) })
	if err := n.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, n, records
}

// theirs puts a session of another instance, which has given it away or is dead, and returns it as an instance sees it.
func theirs(t *testing.T, records *session.Memory, h session.Held, away bool) session.Held {
	t.Helper()
	old := records.As("BBBBBBB")
	h, err := old.Put(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if !away {
		return h
	}
	if err := old.Release(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	h.Owner = ""
	return h
}

// (S-080): only who knows the secret is spoken to, and no instance passes for another.
func TestTrust(t *testing.T) {
	nobody := func(string, http.ResponseWriter, *http.Request) { t.Error("a stranger was served") }
	_, m := instance(t, "AAAAAAA", []string{secret}, nobody)
	b, _ := instance(t, "BBBBBBB", []string{secret}, nobody)
	old, _ := instance(t, "CCCCCCC", []string{secret + ", an old one", secret}, nobody)
	other, _ := instance(t, "DDDDDDD", []string{"another secret of 32 characters or more"}, nobody)
	hello := func(p *Peers, to cluster.Member) error {
		h, err := p.Hello(t.Context(), to, cluster.Hello{ID: p.o.ID})
		if err == nil && h.ID != to.ID {
			return errors.New("answered by " + h.ID)
		}
		return err
	}
	if err := hello(b, m); err != nil {
		t.Errorf("an instance: %v", err)
	}
	if hello(other, m) == nil {
		t.Error("another secret is accepted")
	}
	if hello(old, m) == nil {
		t.Error("a certificate by a secret that is not known is accepted")
	}
	if hello(b, cluster.Member{ID: "EEEEEEE", Address: m.Address}) == nil {
		t.Error("one instance passes for another")
	}
	if _, err := b.Hello(t.Context(), m, cluster.Hello{ID: "EEEEEEE", Leaving: true}); err == nil {
		t.Error("one instance speaks for another")
	}
	for name, c := range map[string]*tls.Config{"no certificate": {InsecureSkipVerify: true}, "TLS 1.2": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{b.trust.own}}} {
		conn, err := tls.Dial("tcp", m.Address, c)
		if err != nil {
			continue
		}
		_, _ = io.WriteString(conn, "POST /peer/v1/s/files/mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if answer, err := io.ReadAll(conn); err == nil && len(answer) > 0 {
			t.Errorf("%s: %q", name, answer)
		}
		_ = conn.Close()
	}
}

// Instances of two versions speak to each other during an update: paths, headers and names
// are as the last minor version has them, and what a newer one says besides is passed over
// (S-071).
func TestOlderPeers(t *testing.T) {
	var who, server string
	_, m := instance(t, "AAAAAAA", []string{secret}, func(to string, w http.ResponseWriter, r *http.Request) {
		who, server = auth.Principal(r.Context()), to
		w.WriteHeader(http.StatusAccepted)
	})
	p, _ := instance(t, "BBBBBBB", []string{secret}, nil)
	post := func(path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+m.Address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Bridge-Principal", "YWxpY2U")
		r.Header.Set("Bridge-Newer", "1")
		res, err := p.link(m).http.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	if status, text := post("/peer/v1/hello", `{"incarnation":"BBBBBBB","state":"sure","store":true,"newer":{"x":1}}`); status != 200 || !strings.Contains(text, `{"incarnation":"AAAAAAA","state":"`) || !strings.Contains(text, `"store":`) {
		t.Errorf("hello = %d %s", status, text)
	}
	for path, want := range map[string]string{"/peer/v1/s/_/mcp": "", "/peer/v1/s/files/mcp": "files", "/peer/v1/s/files/messages": "files"} {
		if status, text := post(path, "{}"); status != http.StatusAccepted || who != "alice" || server != want {
			t.Errorf("%s = %d %s for %q at %q", path, status, text, who, server)
		}
	}
}

// What travels to the owner (S-081): who the caller is as the front has found it, and
// never its key or what it says of itself in headers of the bridge's own.
func TestCarried(t *testing.T) {
	var got *http.Request
	var body string
	_, m := instance(t, "AAAAAAA", []string{secret}, func(server string, w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, server+" "+string(text)
		w.Header().Set("Mcp-Session-Id", "s")
		w.WriteHeader(http.StatusAccepted)
	})
	p, _ := instance(t, "BBBBBBB", []string{secret}, nil)
	r := httptest.NewRequest("POST", "/mcp", nil)
	for name, value := range map[string]string{"Content-Type": "application/json", "Mcp-Session-Id": "x", "X-Tenant": "t", "Authorization": "Bearer key", "X-Api-Key": "key",
		"Cookie": "c", "Bridge-Principal": "YWRtaW4", "Bridge-Hops": "1", "Idempotency-Key": "i", "Connection": "close", "Traceparent": "00-1"} {
		r.Header.Set(name, value)
	}
	r = r.WithContext(auth.WithPrincipal(r.Context(), "alice"))
	w := httptest.NewRecorder()
	if p.forward(m, w, r, version+"s/_/mcp", nil, []byte("body")) != answered || w.Code != http.StatusAccepted || w.Header().Get("Mcp-Session-Id") != "s" {
		t.Errorf("forward = %d %v", w.Code, w.Header())
	}
	if body != " body" || auth.Principal(got.Context()) != "alice" || !forwarded(got) {
		t.Errorf("got %q of %q", body, auth.Principal(got.Context()))
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Mcp-Session-Id": "x", "X-Tenant": "t", "Traceparent": "00-1", "Authorization": "", "X-Api-Key": "", "Cookie": "", "Bridge-Hops": "", "Idempotency-Key": ""} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
}

// What a front answers when the owner's response is not whole (S-020, S-024): each
// request that has no answer yet gets one, with the id that it was sent with.
func TestBrokenOff(t *testing.T) {
	const lost = `"upstream_lost"`
	event := func(data string) string { return "id: p1-1\nevent: message\ndata: " + data + "\n\n" }
	for _, tc := range []struct {
		name, body, says string
		stream           bool
		want             []string // of each answer, a part
		not              string
	}{
		{"nothing", `{"jsonrpc":"2.0","id":"1","method":"x"}`, "", false, []string{`"id":"1"`, lost}, ""},
		{"half of JSON", `{"jsonrpc":"2.0","id":1,"method":"x"}`, `{"jsonrpc":`, false, []string{`"id":1`, lost}, `{"jsonrpc":{`},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":"1","method":"x"}]`, "", false, []string{`[{`, `"id":1,`, `"id":"1",`}, ""},
		{"a stream before its answer", `{"jsonrpc":"2.0","id":7,"method":"x"}`, event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`) + event(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`), true, []string{"notifications/progress", "roots/list", `"id":7,"error"`, lost}, ""},
		{"a stream after it", `{"jsonrpc":"2.0","id":7,"method":"x"}`, event(`{"jsonrpc":"2.0","id":7,"result":{}}`), true, []string{`"result"`}, lost},
		{"in the midst of an event", `{"jsonrpc":"2.0","id":7,"method":"x"}`, ": beat\n\n" + event(`{"jsonrpc":"2.0","id":7,"result":{}}`)[:40], true, []string{": beat", lost}, `"id":7,"res`},
		{"one of a batch", `[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"x"}]`, event(`{"jsonrpc":"2.0","id":1,"error":{}}`), true, []string{`"id":1,"error":{}`, `"id":2,"error":{"code"`}, `"id":1,"error":{"code"`},
		{"a large event", `{"jsonrpc":"2.0","id":7,"method":"x"}`, "data: " + strings.Repeat("x", 3*maxBuffered), true, []string{"xxx"}, lost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, m := instance(t, "AAAAAAA", []string{secret}, func(_ string, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				conn, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				if kind := "application/json"; tc.says != "" {
					if tc.stream {
						kind = "text/event-stream"
					}
					_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nContent-Length: 1000000\r\n\r\n" + tc.says)
					_ = rw.Flush()
				}
			})
			p, _ := instance(t, "BBBBBBB", []string{secret}, nil)
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if p.forward(m, w, r, version+"s/_/mcp", nil, []byte(tc.body)) != answered {
					t.Error("not answered")
				}
			}))
			defer front.Close()
			res, err := http.Post(front.URL, "application/json", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if broken := err != nil; broken != (tc.name == "a large event") {
				t.Errorf("the client's connection: %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("got %.500s, want %s", text, want)
				}
			}
			if tc.not != "" && strings.Contains(string(text), tc.not) {
				t.Errorf("got %.500s, which has %s", text, tc.not)
			}
		})
	}
}

// send has an instance send a call on, and returns what came of it.
func send(p *Peers, to cluster.Member, method, server string) (outcome, string) {
	w := httptest.NewRecorder()
	how := p.forward(to, w, httptest.NewRequest(method, "/mcp", nil), version+"s/"+server+"/mcp", nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"x"}`))
	return how, w.Body.String()
}

// What comes back whole is passed on as it is, and what could not be sent is not answered:
// only that may be sent again (S-022).
func TestWhole(t *testing.T) {
	large := strings.Repeat("0123456789", 100_000)
	stream := ": hello\n\nid: g-1\ndata: {\"jsonrpc\":\"2.0\"}\n\n" + "data: " + large + "\n\ndata: {}\n\n"
	_, m := instance(t, "AAAAAAA", []string{secret}, func(server string, w http.ResponseWriter, _ *http.Request) {
		switch server {
		case "large":
			_, _ = io.WriteString(w, large)
		case "stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, stream)
		default:
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	})
	p, _ := instance(t, "BBBBBBB", []string{secret}, nil)
	if how, text := send(p, m, "POST", "large"); how != answered || text != large {
		t.Errorf("a large answer: %v, %d bytes", how, len(text))
	}
	if how, text := send(p, m, "POST", "stream"); how != answered || text != stream {
		t.Errorf("a stream: %v, %d bytes", how, len(text))
	}
	if how, text := send(p, m, "POST", "gone"); how != refused || text != "" {
		t.Errorf("a session that is not there: %v, %q", how, text)
	}
	if how, text := send(p, cluster.Member{ID: "ZZZZZZZ", Address: m.Address}, "POST", "large"); how != unsent || text != "" {
		t.Errorf("another instance at the address: %v, %q", how, text)
	}
	if how, text := send(p, cluster.Member{ID: "YYYYYYY", Address: "127.0.0.1:1"}, "POST", "large"); how != unsent || text != "" {
		t.Errorf("nobody at the address: %v, %q", how, text)
	}
}

// breaking is a connection whose writes can be made to fail.
type breaking struct {
	net.Conn
	after *atomic.Int64 // so many bytes; none while it is negative
}

func (b *breaking) Write(p []byte) (int, error) {
	most := int(b.after.Load())
	switch {
	case most < 0:
		return b.Conn.Write(p)
	case most == 0:
		return 0, net.ErrClosed
	}
	n, err := b.Conn.Write(p[:min(len(p), most)])
	return n, errors.Join(err, net.ErrClosed)
}

// A request that was to go over a connection that was kept, and is broken, may be sent to
// another instance if nothing of it was written, and only then (S-022).
func TestKeptBroken(t *testing.T) {
	_, m := instance(t, "AAAAAAA", []string{secret}, func(_ string, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	for _, c := range []struct {
		name   string
		method string
		after  int64
		want   outcome
		lost   bool
	}{
		{"nothing was written", "POST", 0, unsent, false},
		{"a part was written", "POST", 10, answered, true},
		{"all was written", "POST", -1, answered, false},
		{"a part of a GET was written", "GET", 10, unsent, false},
		{"a part of a DELETE was written", "DELETE", 10, unsent, false},
	} {
		p, _ := instance(t, "BBBBBBB", []string{secret}, nil)
		var after atomic.Int64
		after.Store(-1)
		link := p.link(m)
		dial := link.http.DialTLSContext
		link.http.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if after.Load() >= 0 {
				return nil, errors.New("the instance has ended")
			}
			conn, err := dial(ctx, network, address)
			if err == nil {
				at := conn.(*counted)
				at.Conn = &breaking{at.Conn, &after}
			}
			return conn, err
		}
		if how, text := send(p, m, c.method, "_"); how != answered || text != "" {
			t.Fatalf("%s: the first request: %v, %q", c.name, how, text)
		}
		after.Store(c.after)
		if how, text := send(p, m, c.method, "_"); how != c.want || strings.Contains(text, "upstream_lost") != c.lost {
			t.Errorf("%s: %v, %q", c.name, how, text)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: {}\n\n: x\n\n")
	f.Add("\n\n\ndata")
	f.Add(strings.Repeat("x", 5000) + "\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		e := &eventReader{in: bufio.NewReaderSize(strings.NewReader(text), 16), fresh: true}
		var all strings.Builder
		for {
			part, ends, err := e.next()
			if err != nil {
				break
			}
			if ends && string(part) != "\n" && !strings.HasSuffix(string(part), "\n\n") && len(part) > 1 {
				t.Fatalf("%q is no event", part)
			}
			all.Write(part)
		}
		if !strings.HasPrefix(text, all.String()) {
			t.Fatalf("%q became %q", text, all.String())
		}
	})
}
