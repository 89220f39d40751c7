package server

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/toolchain"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// certified writes a certificate for this machine with that serial number, and
// its key, and returns what trusts it.
func certified(t *testing.T, files config.TLS, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, text := range map[string][]byte{files.CertFile: cert, files.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// safe is a Server that serves HTTPS on a real address.
type safe struct {
	*served
	trust *x509.CertPool
	left  atomic.Int32 // connections that have left the HTTP server
}

func newSafe(t *testing.T, log *slog.Logger, f *wiretest.Server) *safe {
	t.Helper()
	dir, c := t.TempDir(), config.Default()
	c.Listen, c.Drain = "127.0.0.1:0", 0
	c.TLS = config.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	private(&c)
	s := &safe{trust: certified(t, c.TLS, 1)}
	made := onStdio(&c, log, f)
	made.http.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateHijacked {
			s.left.Add(1)
		}
	}
	s.served = serveOn(t, made)
	return s
}

// Both versions of HTTP, each with all that streams: answers, the stream of a
// session, and subscriptions, which leave the HTTP server where they can.
func TestTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		name, proto := "HTTP/1.1", 1
		if h2 {
			name, proto = "HTTP/2", 2
		}
		t.Run(name, func(t *testing.T) {
			if h2 && toolchain.Vulnerable(runtime.Version()) {
				t.Skipf("%s serves no HTTP/2: build with %s", runtime.Version(), toolchain.Fixed)
			}
			f := &wiretest.Server{}
			s := newSafe(t, slog.New(slog.DiscardHandler), f)
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.trust}, ForceAttemptHTTP2: h2}
			defer tr.CloseIdleConnections()
			do := func(method, path, body string, header ...string) *http.Response {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.l.Addr().String()+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				header = append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				a, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if a.ProtoMajor != proto {
					t.Errorf("%s %s was answered in %s", method, path, a.Proto)
				}
				return a
			}
			text := func(a *http.Response) string {
				t.Helper()
				defer a.Body.Close()
				b, err := io.ReadAll(a.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			if a := do("POST", "/mcp", initialize); a.StatusCode != 401 {
				t.Errorf("without a key: %d %s", a.StatusCode, text(a))
			}
			a := do("POST", "/mcp", initialize, as(aliceKey)...)
			mine := append(as(aliceKey), "Mcp-Session-Id", a.Header.Get("Mcp-Session-Id"))
			if got := text(a); a.StatusCode != 200 || !strings.Contains(got, `"id":0`) {
				t.Fatalf("initialize: %d %s", a.StatusCode, got)
			}
			if got := text(do("POST", "/mcp", call("1", "steps"), mine...)); !strings.Contains(got, `"steps":true`) {
				t.Errorf("a call: %s", got)
			}
			if got := text(do("POST", "/mcp", strings.Replace(call("2", "large"), `{}`, `{"n":3000000}`, 1), mine...)); len(got) < 3000000 {
				t.Errorf("a large answer has %d bytes", len(got))
			}

			stream := do("GET", "/mcp", "", mine...)
			defer stream.Body.Close()
			f.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`)
			events := bufio.NewScanner(stream.Body)
			wait := func(events *bufio.Scanner, what string) {
				t.Helper()
				for events.Scan() {
					if strings.Contains(events.Text(), what) {
						return
					}
				}
				t.Fatalf("a stream ended without %q: %v", what, events.Err())
			}
			wait(events, "hello")

			body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
			listening := do("POST", "/one/mcp", body, append(header, as(aliceKey)...)...)
			defer listening.Body.Close()
			changes := bufio.NewScanner(listening.Body)
			wait(changes, "acknowledged")
			f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			wait(changes, "list_changed")

			sse := do("GET", "/sse", "", as(aliceKey)...)
			defer sse.Body.Close()
			wait(bufio.NewScanner(sse.Body), "sessionId=")

			if c, err := tls.Dial("tcp", s.l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
				c.Close()
				t.Error("TLS 1.1 is spoken")
			}
			until := s.readiness().TLS.Until.Unix()
			scraped := text(do("GET", "/metrics", "", as(aliceKey)...))
			for _, want := range []string{"last_reload_successful 1\n", fmt.Sprintf("expiry_timestamp_seconds %v\n", float64(until))} {
				if !strings.Contains(scraped, "\nmcp_bridge_tls_certificate_"+want) {
					t.Errorf("the metrics lack %q", want)
				}
			}
			if n := s.left.Load(); n != map[bool]int32{false: 2}[h2] { // on HTTP/2 none can
				t.Errorf("%d connections have left the HTTP server", n)
			}
			s.end()
			wait(changes, `"result"`) // the end of a subscription is said
			for changes.Scan() {
			}
			for events.Scan() {
			}
			if changes.Err() != nil || events.Err() != nil {
				t.Errorf("the streams ended with %v and %v", changes.Err(), events.Err())
			}
		})
	}
}

// A changed certificate is shown to who connects then, a bad pair to nobody. The status checks the files itself: a bridge
// without new connections says so too.
func TestTLSReload(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	files := config.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	certified(t, files, 1)
	c := &certificate{files: files, log: slog.New(slog.NewTextHandler(&out, nil))}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	made := func(serial int64) func() { return func() { certified(t, files, serial) } }
	key := func(text string) func() {
		return func() {
			if err := os.WriteFile(files.KeyFile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		name   string
		do     func()
		serial int64 // of the certificate that is shown
		fault  string
	}{
		{"at first", func() {}, 1, ""},
		{"after a change", made(2), 2, ""},
		{"with an empty key", key(""), 2, "key_file " + files.KeyFile + ": failed to find any PEM data"},
		{"with junk", key("junk"), 2, "key_file " + files.KeyFile + ": failed to find any PEM data"},
		{"with a half key", key("-----BEGIN PRIVATE KEY-----\nMIGHAgEA"), 2, "key_file " + files.KeyFile + ": failed to find any PEM data"},
		{"without the file", func() { _ = os.Remove(files.CertFile) }, 2, "cert_file " + files.CertFile + ": "},
		{"mended", made(3), 3, ""},
	} {
		step.do()
		c.next.Store(0) // it is time to look
		st := c.status()
		for range 3 {
			c.next.Store(0)
			if pair, err := c.config().GetCertificate(nil); err != nil || pair.Leaf.SerialNumber.Int64() != step.serial {
				t.Errorf("%s: certificate %v, %v", step.name, pair.Leaf.SerialNumber, err)
			}
		}
		until, good := c.Good()
		if left := time.Until(until); left < 50*time.Minute || left > time.Hour || !until.Equal(st.Until) || good != (step.fault == "") {
			t.Errorf("%s: the certificate is good for %v, %t", step.name, left, good)
		}
		if good {
			if st.LastError != "" {
				t.Errorf("%s: %+v", step.name, st)
			}
			continue
		}
		all := &status.Bridge{Whole: &status.Load{}, TLS: st}
		if st.LastErrorAt == nil || !strings.HasPrefix(st.LastError, "the new certificate cannot be used") || strings.Contains(st.LastError, dir) || !strings.Contains(all.Text(time.Now()), "the old one stays in use; see the log for the reason (since ") {
			t.Errorf("%s: %+v, for people: %s", step.name, st, all.Text(time.Now()))
		}
		if all.AddStderr(); !strings.Contains(all.TLS.LastError, step.fault) {
			t.Errorf("%s: an operator reads %q", step.name, all.TLS.LastError)
		}
	}
	if n := strings.Count(out.String(), "the new certificate cannot be used"); n != 2 || !strings.Contains(out.String(), "failed to find any PEM data") || !strings.Contains(out.String(), "does not exist") {
		t.Errorf("the log says %d times why: %s", n, &out)
	}
}

// A bad pair at the start is an error that names the file.
func TestTLSBad(t *testing.T) {
	dir, c := t.TempDir(), config.Default()
	c.Listen, c.TLS = "127.0.0.1:0", config.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	certified(t, c.TLS, 1)
	if err := os.WriteFile(c.TLS.CertFile, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := onStdio(&c, slog.New(slog.DiscardHandler), &wiretest.Server{})
	if _, err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "tls: cert_file "+c.TLS.CertFile+": ") {
		t.Errorf("Listen: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "cert_file") {
		t.Errorf("Serve: %v", err)
	}
	closed(t, l)
}

// A program that a vulnerable Go has built does not speak HTTP/2, and says so.
func TestTLSVulnerable(t *testing.T) {
	for version, want := range map[string]bool{"go1.26.8": false, "go1.27.1": false, "go1.26.9": true} {
		var log bytes.Buffer
		p := protocols(version, slog.New(slog.NewTextHandler(&log, nil)))
		if speaks := p == nil || p.HTTP2(); speaks != want || p != nil && !p.HTTP1() { // nil stands for both
			t.Errorf("%s: %v", version, p)
		}
		if said := strings.Contains(log.String(), "GO-2026-6617"); said == want {
			t.Errorf("%s: the log has %q", version, &log)
		}
	}
}
