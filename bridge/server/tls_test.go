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
	"net/http/httptest"
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
	files config.TLS
	trust *x509.CertPool
	left  atomic.Int32 // connections that have left the HTTP server
}

func newSafe(t *testing.T, log *slog.Logger, f *wiretest.Server) *safe {
	t.Helper()
	dir, c := t.TempDir(), config.Default()
	c.Listen, c.Drain = "127.0.0.1:0", 0
	c.TLS = config.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	private(&c)
	s := &safe{files: c.TLS, trust: certified(t, c.TLS, 1)}
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

// A changed certificate is shown to who connects then, a bad pair to nobody.
func TestTLSReload(t *testing.T) {
	var out bytes.Buffer
	s := newSafe(t, slog.New(slog.NewTextHandler(&out, nil)), &wiretest.Server{})
	shown := func() int64 {
		t.Helper()
		s.cert.next.Store(0) // it is time to look
		c, err := tls.Dial("tcp", s.l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		state := c.ConnectionState()
		if state.NegotiatedProtocol != "h2" || state.Version < tls.VersionTLS12 {
			t.Errorf("%q in version %x", state.NegotiatedProtocol, state.Version)
		}
		return state.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := shown(); n != 1 {
		t.Errorf("at first, certificate %d", n)
	}
	certified(t, s.files, 2)
	if n := shown(); n != 2 {
		t.Errorf("after a change, certificate %d", n)
	}
	good, err := os.ReadFile(s.files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	told := func(good string) *status.Certificate {
		t.Helper()
		s.cert.next.Store(0)
		st := s.readiness().TLS
		if until := time.Until(st.Until); until < 50*time.Minute || until > time.Hour {
			t.Errorf("the certificate is good for %v", until)
		}
		w := httptest.NewRecorder()
		s.metrics.Serve(w, httptest.NewRequest("GET", "/metrics", nil), nil)
		for _, want := range []string{"last_reload_successful " + good + "\n", fmt.Sprintf("expiry_timestamp_seconds %v\n", float64(st.Until.Unix()))} {
			if !strings.Contains(w.Body.String(), "\nmcp_bridge_tls_certificate_"+want) {
				t.Errorf("the metrics lack %q", want)
			}
		}
		return st
	}
	if st := told("1"); st.LastError != "" {
		t.Errorf("with good files: %+v", st)
	}
	for _, bad := range []string{"", "junk", string(good[:40])} {
		if err := os.WriteFile(s.files.KeyFile, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		// The status checks the files itself: a bridge without new connections says so too.
		if st := told("0"); st.LastErrorAt == nil || !strings.HasPrefix(st.LastError, "the new certificate cannot be used") || strings.Contains(st.LastError, "tls.key") {
			t.Errorf("with a bad key: %+v", st)
		}
		for range 3 {
			if n := shown(); n != 2 {
				t.Errorf("with a bad key, certificate %d", n)
			}
		}
	}
	if err := os.Remove(s.files.CertFile); err != nil {
		t.Fatal(err)
	}
	if n := shown(); n != 2 {
		t.Errorf("without the file, certificate %d", n)
	}
	all := s.readiness()
	if got := all.Text(time.Now()); !strings.Contains(got, "the old one stays in use; see the log for the reason (since ") {
		t.Errorf("for people: %s", got)
	}
	if all.AddStderr(); !strings.Contains(all.TLS.LastError, "cert_file "+s.files.CertFile+": ") {
		t.Errorf("an operator reads %q", all.TLS.LastError)
	}
	certified(t, s.files, 3)
	if n := shown(); n != 3 {
		t.Errorf("mended, certificate %d", n)
	}
	if st := told("1"); st.LastError != "" {
		t.Errorf("mended: %+v", st)
	}
	if c, err := tls.Dial("tcp", s.l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
		c.Close()
		t.Error("TLS 1.1 is spoken")
	}
	s.end()
	if n := strings.Count(out.String(), "the new certificate cannot be used"); n != 2 || !strings.Contains(out.String(), "key_file "+s.files.KeyFile+": failed to find any PEM data") || !strings.Contains(out.String(), "does not exist") {
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
