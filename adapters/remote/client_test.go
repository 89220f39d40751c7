package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves h until the test ends.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func client(t testing.TB, c Config) *Client {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// ask makes both kinds of requests, which must come to the same, and returns
// the body of the answer.
func ask(t testing.TB, c *Client, method string, forward http.Header, body []byte) (string, error) {
	t.Helper()
	var text [2]string
	var errs [2]error
	for i, do := range []func(*http.Request) (*http.Response, error){c.Do, c.Stream} {
		var res *http.Response
		if res, errs[i] = do(c.Request(t.Context(), method, c.URL(), forward, body)); errs[i] == nil {
			all, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			text[i] = string(all)
		}
	}
	if text[0] != text[1] || (errs[0] == nil) != (errs[1] == nil) {
		t.Errorf("Do: %q, %v; Stream: %q, %v", text[0], errs[0], text[1], errs[1])
	}
	return text[0], errs[0]
}

// Configured headers go with every request, forwarded ones win.
func TestRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, r.Method, r.URL, r.Header["Authorization"], r.Header["X-Tenant"], r.Header["X-Own"], r.Header["Accept"], r.ContentLength, string(body))
	})
	c := client(t, Config{URL: s.URL + "/mcp?key=1", Headers: map[string]string{"authorization": "Bearer a", "x-own": "b"}})
	if got, err := ask(t, c, "POST", http.Header{"X-Tenant": {"c", "d"}, "Authorization": {"Bearer e"}}, []byte("{}")); got != "POST/mcp?key=1 [Bearer e] [c d] [b] [] 2{}" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := ask(t, c, "GET", nil, nil); got != "GET/mcp?key=1 [Bearer a] [] [b] [] 0" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// a redirect is followed within the origin, if the request stays unchanged.
func TestRedirects(t *testing.T) {
	const secret = "SECRET"
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other origin got a request with %v", r.Header)
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprint(w, r.Method, string(body), r.Header.Get("Authorization"))
			return
		}
		var status, left int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d/%d", &status, &left)
		to := r.URL.Query().Get("to")
		if left > 0 {
			to = fmt.Sprintf("/%d/%d?to=%s", status, left-1, url.QueryEscape(to))
		}
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, test := range []struct {
			method, to string
			left       int
			ok         bool
			want       string
		}{
			{"GET", "/end", 0, true, ""},
			{"GET", s.URL + "/end?key=" + secret, 2, true, ""},
			{"GET", "/end", 3, false, "more than 3 times"},
			{"GET", other.URL + "/end?key=" + secret, 0, false, "another origin"},
			{"GET", strings.Replace(s.URL, "http:", "https:", 1) + "/end", 0, false, "another origin"},
			{"GET", "//" + strings.TrimPrefix(other.URL, "http://") + "/end", 0, false, "another origin"},
			{"GET", "http://%zz/" + secret, 0, false, "failed to parse Location header"},
			{"POST", "/end", 0, status > 303, "turns POST into GET"},
			{"POST", other.URL + "/end", 0, false, "another origin"},
		} {
			c := client(t, Config{URL: fmt.Sprintf("%s/%d/%d?to=%s", s.URL, status, test.left, url.QueryEscape(test.to)), Headers: map[string]string{"Authorization": secret}})
			var body []byte
			if test.method == "POST" {
				body = []byte("{}")
			}
			got, err := ask(t, c, test.method, nil, body)
			if test.ok {
				if want := test.method + string(body) + secret; err != nil || got != want {
					t.Errorf("%d %s to %s: %q, %v, want %q", status, test.method, test.to, got, err, want)
				}
				continue
			}
			_, typed := errors.AsType[RedirectError](err)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) || Unsent(err) || typed == strings.Contains(test.want, "failed") {
				t.Errorf("%d %s to %s: %q, %v, want %q", status, test.method, test.to, got, err, test.want)
			}
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"http://h/a", "http://h/b?c", true},
		{"http://h", "http://h:80/", true},
		{"https://h:443", "https://H/", true},
		{"http://h", "https://h", false},
		{"http://h:443", "https://h:443", false},
		{"http://h:8080", "http://h", false},
		{"http://localhost", "http://127.0.0.1", false},
		{"http://[::1]:1", "http://[::1]:1/x", true},
		{"http://h", "http://h.evil", false},
		{"http://h", "http://h@evil", false},
	} {
		a, err := url.Parse(test.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := url.Parse(test.b)
		if err != nil {
			t.Fatal(err)
		}
		if SameOrigin(a, b) != test.want || SameOrigin(b, a) != test.want {
			t.Errorf("SameOrigin(%s, %s) is not %v", a, b, test.want)
		}
	}
}

// raw serves connections with f until the test ends.
func raw(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// answering reads a request's head and writes text.
func answering(text string) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 64<<10)
		_, _ = c.Read(buf)
		_, _ = io.WriteString(c, text)
	}
}

// D0.8: errors distinguish unsent requests from those that may have been sent, and show no secret.
func TestUnsent(t *testing.T) {
	closed := raw(t, func(net.Conn) {})
	const refused = "127.0.0.1:1"
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of failed handshakes
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, plainAt, _ := strings.Cut(plain.URL, "//")
	for _, test := range []struct {
		name, url, proxy string
		unsent           bool
	}{
		{"refused", "http://" + refused + "/SECRET", "none", true},
		{"unknown host", "http://SECRET.invalid/SECRET", "none", true},
		{"unknown certificate", secure.URL + "/SECRET", "none", true},
		{"no TLS but HTTP", "https://" + plainAt + "/SECRET", "none", true},
		{"no TLS at all", "https://" + raw(t, answering("220 mail, and much more of it than a header\r\n")) + "/SECRET", "none", true},
		{"proxy refused", "http://SECRET.invalid/", "http://user:SECRET@" + refused, true},
		{"proxy refused, TLS", "https://SECRET.invalid/", "http://user:SECRET@" + refused, true},
		{"proxy says no", "https://SECRET.invalid/", "http://user:SECRET@" + raw(t, answering("HTTP/1.1 407 SECRET\r\n\r\n")), true},
		{"proxy says no, SOCKS", "http://SECRET.invalid/", "socks5://user:SECRET@" + raw(t, answering("\x05\xff")), true},
		{"closed", "http://" + closed + "/SECRET", "none", false},
		{"no HTTP", "http://" + raw(t, answering("SECRET\r\n\r\n")) + "/SECRET", "none", false},
		{"broken header", "http://" + raw(t, answering("HTTP/1.1 200 OK\r\nSECRET\r\n\r\n")) + "/SECRET", "none", false},
		{"broken status", "http://" + raw(t, answering("HTTP/1.1 SECRET\r\n\r\n")) + "/SECRET", "none", false},
		{"broken length", "http://" + raw(t, answering("HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n")) + "/SECRET", "none", false},
		{"endless header", "http://" + raw(t, answering("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("SECRET", 20_000)+"\r\n\r\n")) + "/SECRET", "none", false},
	} {
		c := client(t, Config{URL: test.url + "?key=SECRET", Proxy: test.proxy, Headers: map[string]string{"Authorization": "SECRET"}})
		_, err := ask(t, c, "POST", nil, []byte(`"SECRET"`))
		host := strings.Contains(test.url, "SECRET.invalid") // which is no secret
		if err == nil || Unsent(err) != test.unsent || strings.Contains(err.Error(), "SECRET") && !host || strings.Contains(err.Error(), "key=") || strings.Contains(err.Error(), "user") {
			t.Errorf("%s: %v, Unsent = %v, want %v and no secret", test.name, err, err != nil && Unsent(err), test.unsent)
		}
	}
}

// An error of TLS says what to do about it.
func TestAdvice(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of failed handshakes
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct{ name, url, ca, want string }{
		{"unknown CA", secure.URL, "", "(name the certificate of its CA: in ca_file of the server, or in the variable SSL_CERT_FILE)"},
		{"another name", strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), ca, "(use a name that is in the certificate, or give the server another one)"},
		{"no TLS but HTTP", strings.Replace(plain.URL, "http:", "https:", 1), "", "(it speaks no TLS at this address: write http:// if that is meant)"},
		{"no TLS at all", "https://" + raw(t, answering("220 mail, and much more of it than a header\r\n")), "", "write http://"},
		{"TLS only", strings.Replace(secure.URL, "https:", "http:", 1), "", "it speaks HTTPS at this address: write https://"},
		{"TLS only, as nginx", serve(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>", http.StatusBadRequest)
		}).URL, "", "it speaks HTTPS at this address: write https://"},
	} {
		_, err := ask(t, client(t, Config{URL: test.url, Proxy: "none", CAFile: test.ca}), "POST", nil, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	if got := advice(io.EOF); got != "" {
		t.Errorf("advice about another error: %q", got)
	}
}

// What New cannot use it says, without telling the secrets in it.
func TestNew(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{URL: "http://SECRET%zz"}, "url"},
		{Config{Proxy: "http://u:SECRET@%zz"}, "proxy"},
		{Config{CAFile: filepath.Join(dir, "none")}, "ca_file"},
		{Config{CAFile: file("ca", "SECRET")}, "ca_file: there is no PEM certificate in it"},
		{Config{CertFile: file("c", "SECRET"), KeyFile: file("k", "SECRET")}, "cert_file and key_file"},
	} {
		if _, err := New(test.c); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("New(%+v) = %v, want %q", test.c, err, test.want)
		}
	}
}

// certificate makes a certificate for 127.0.0.1 that signs itself, and the files of it.
func certificate(t testing.TB) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return cert, certFile, keyFile
}

// A certificate of one's own, a client's certificate, and HTTP/2, which a stream does not use.
func TestTLS(t *testing.T) {
	own, certFile, keyFile := certificate(t)
	theirs, theirCert, theirKey := certificate(t)
	pool := x509.NewCertPool()
	pool.AddCert(theirs.Leaf)
	for _, mutual := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, r.ProtoMajor, len(r.TLS.PeerCertificates))
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MaxVersion: tls.VersionTLS12}
		if mutual {
			s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, pool
		}
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		for _, test := range []struct {
			c  Config
			ok bool
		}{
			{Config{URL: s.URL}, false},
			{Config{URL: s.URL, CAFile: certFile}, !mutual},
			{Config{URL: s.URL, CAFile: theirCert, CertFile: theirCert, KeyFile: theirKey}, false},
			{Config{URL: s.URL, CAFile: certFile, CertFile: theirCert, KeyFile: theirKey}, true},
			{Config{URL: s.URL, CAFile: certFile, CertFile: certFile, KeyFile: keyFile}, !mutual},
		} {
			c := client(t, test.c)
			for want, do := range map[string]func(*http.Request) (*http.Response, error){"2": c.Do, "1": c.Stream} {
				res, err := do(c.Request(t.Context(), "GET", c.URL(), nil, nil))
				if (err == nil) != test.ok {
					t.Errorf("mutual %v: %+v: %v", mutual, test.c, err)
				}
				if err == nil {
					got, _ := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if mutual {
						want += " 1"
					} else {
						want += " 0"
					}
					if string(got) != want {
						t.Errorf("mutual %v: %+v: HTTP version and certificates %s, want %s", mutual, test.c, got, want)
					}
				}
			}
		}
	}
}

// A proxy is used if it is named.
func TestProxy(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "server") })
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "proxy for ", r.URL, r.Header.Get("Proxy-Authorization"))
	})
	_, at, _ := strings.Cut(proxy.URL, "//")
	c := client(t, Config{URL: "http://far.invalid/x", Proxy: "http://u:p@" + at})
	if got, err := ask(t, c, "GET", nil, nil); got != "proxy for http://far.invalid/xBasic dTpw" || err != nil {
		t.Errorf("with a proxy: %q, %v", got, err)
	}
	c = client(t, Config{URL: s.URL, Proxy: "none"})
	if got, err := ask(t, c, "GET", nil, nil); got != "server" || err != nil {
		t.Errorf("without: %q, %v", got, err)
	}
}

// A connection is used again within the idle time-out and closed after it.
func TestIdleTimeout(t *testing.T) {
	for _, test := range []struct{ set, want time.Duration }{{0, 4 * time.Second}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			c := client(t, Config{URL: "http://h/", Proxy: "none", IdleTimeout: test.set})
			dials := 0
			var wg sync.WaitGroup
			c.short.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
				dials++
				ours, theirs := net.Pipe()
				wg.Go(func() {
					defer theirs.Close()
					buf := make([]byte, 4096)
					for {
						if _, err := theirs.Read(buf); err != nil {
							return
						}
						_, _ = io.WriteString(theirs, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
					}
				})
				return ours, nil
			}
			for i, wait := range []time.Duration{0, test.want - 1, test.want + 1} {
				<-time.After(wait)
				res, err := c.Do(c.Request(t.Context(), "GET", c.URL(), nil, nil))
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if want := []int{1, 1, 2}[i]; dials != want {
					t.Errorf("after %v: %d connections, want %d", wait, dials, want)
				}
			}
			c.Close()
			wg.Wait()
		})
	}
}

// D0.8: net/http takes a request with a key for idempotency as one that it may
// send again. Whose key that is, and for what, is not known here.
func TestNotSentTwice(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		var mu sync.Mutex
		var got []string
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			got = append(got, string(body)+r.Header.Get(name))
			mu.Unlock()
			if string(body) == "break" {
				panic(http.ErrAbortHandler)
			}
		})
		for _, c := range []*Client{client(t, Config{URL: s.URL}), client(t, Config{URL: s.URL, Headers: map[string]string{name: "k"}})} {
			mu.Lock()
			got = nil
			mu.Unlock()
			for _, body := range []string{"first", "break"} { // the second over the connection of the first
				res, err := c.Do(c.Request(t.Context(), "POST", c.URL(), http.Header{name: {"k"}}, []byte(body)))
				if (err == nil) != (body == "first") {
					t.Errorf("%s: %v", body, err)
				}
				if err == nil {
					_ = res.Body.Close()
				}
			}
			mu.Lock()
			if want := "firstk breakk"; strings.Join(got, " ") != want {
				t.Errorf("%s: the server got %q, want %s", name, got, want)
			}
			mu.Unlock()
		}
	}
}
