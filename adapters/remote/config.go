// Package remote has the settings and the HTTP client for servers over HTTP, and detects which of
// two transports such a server speaks.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/internal/oauth"
)

// Config says how to reach one remote server.
type Config struct {
	// URL is the address of the MCP endpoint, http or https.
	URL string `yaml:"url"`
	// Headers are sent with every request.
	Headers map[string]string `yaml:"headers" names:"header"`
	// Transport is the transport to the server: "streamable" (Streamable HTTP), "sse" (HTTP+SSE of
	// 2024-11-05), or "auto". The value auto tries streamable and then sse (protocol.md C2). Empty
	// means auto.
	Transport string `yaml:"transport" default:"auto" shown:"yes"`
	// CAFile names a PEM file of authorities that may sign the server's certificate, besides those
	// that the system trusts.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the PEM certificate and key that the bridge shows to the server; both
	// or neither.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Proxy is the URL of a proxy (http, https or socks5), or "none". Empty means the proxy that
	// HTTP_PROXY, HTTPS_PROXY and NO_PROXY name.
	Proxy string `yaml:"proxy"`
	// IdleTimeout is how long an unused connection stays open; 4 s if 0. It should be shorter than the
	// server's own limit, which is 5 s for Node.
	IdleTimeout time.Duration `yaml:"idle_timeout" effect:"next" default:"4s"`
	// OAuth says how the bridge gets tokens for the server. If it is nil, the bridge gets none.
	OAuth *oauth.Settings `yaml:"oauth"`
	// Auth, unless nil, returns the tokens for requests. The bridge makes it from OAuth. Only a
	// program can set it.
	Auth Authorizer `yaml:"-"`
	// Refuses, unless nil, reports whether connections to an address are forbidden. The client calls
	// it before each connection. With a proxy, the address is the proxy's, since the proxy resolves
	// the server's name. Only a program can set it.
	Refuses func(netip.Addr) bool `yaml:"-"`
	// Outside is for addresses that strangers have named. It forbids connections to link-local
	// addresses, to this machine and to private networks. It also forbids requests by a proxy to such
	// a host, if the name shows that. It replaces Refuses. Only a program can set it.
	Outside bool `yaml:"-"`
	// TLS, unless nil, replaces the settings of certificates. Dial, unless nil, opens the connections.
	// Only a program can set them.
	TLS  *tls.Config                                                          `yaml:"-"`
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-"`
}

// These are the values of Config.Transport.
const (
	TransportAuto       = "auto"
	TransportStreamable = "streamable"
	TransportSSE        = "sse"
)

// Validate returns the faults of the settings, apart from those by the bounds in their tags, which package config
// checks. It reads no file and opens no connection. The error contains no values that may be secrets.
func (c *Config) Validate() error {
	var errs []error
	if err := checkURL(c.URL); err != nil {
		errs = append(errs, fmt.Errorf("url %w", err))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("headers: %q is not the name of a header", name))
		case Reserved(name):
			errs = append(errs, fmt.Errorf("headers: %s is set by the bridge itself: remove it", name))
		case !httpguts.ValidHeaderFieldValue(c.Headers[name]):
			errs = append(errs, fmt.Errorf("headers: the value of %s has a line break or another character that a header cannot have", name))
		}
	}
	if !slices.Contains([]string{"", TransportAuto, TransportStreamable, TransportSSE}, c.Transport) {
		errs = append(errs, errors.New(transportFault(c.Transport)))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("cert_file and key_file belong together: set both or neither"))
	}
	if c.Proxy != "" && c.Proxy != "none" {
		u, err := url.Parse(c.Proxy)
		if err != nil || u.Host == "" || strings.Trim(u.Path, "/")+u.RawQuery != "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			errs = append(errs, errors.New("proxy must be none, or a URL such as http://proxy.example.com:3128"))
		}
	}
	for name := range c.Headers {
		if c.OAuth != nil && http.CanonicalHeaderKey(name) == "Authorization" {
			errs = append(errs, errors.New("oauth sets the header Authorization, and so does headers: remove one of the two"))
		}
	}
	return errors.Join(errs...)
}

// transportFault returns the fault of an unknown transport. For a name that other programs use, it
// says what to write instead.
func transportFault(name string) string {
	fix := ""
	switch name {
	case "http", "http-only", "streamable-http", "streamableHttp", "streamablehttp":
		fix = "write streamable"
	case "sse-only":
		fix = "write sse"
	case "http-first", "sse-first":
		fix = "leave it out, since the transport is detected"
	default:
		return "transport must be auto, streamable or sse"
	}
	return fmt.Sprintf("transport is %q: %s", name, fix)
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return errors.New("is missing: give the address of the server's MCP endpoint, such as https://tools.example.com/mcp")
	case err == nil && u.Host != "" && u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("has the unknown scheme %.20q: write http:// or https://", u.Scheme)
	case err != nil || u.Host == "" || u.Scheme == "":
		return errors.New("must be the address of an MCP endpoint, such as https://tools.example.com/mcp")
	case placeholder.MatchString(s):
		return errors.New("has a space, or braces or < > that stand for a value: write the address itself, or %20 and the like")
	case u.Port() != "" && !isPort(u.Port()):
		return errors.New("has a port above 65535")
	case u.User != nil:
		return errors.New("must not hold a password: use headers: { Authorization: … }")
	case u.Fragment != "":
		return errors.New("must not have a #fragment")
	}
	return nil
}

// placeholder matches what no address contains unencoded, such as {name}. It does not match other odd
// characters that servers accept, such as a | in the query.
var placeholder = regexp.MustCompile(`[ <>]|\{[\w. -]*\}`)

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// Reserved reports whether only the transport or the connection may set a header (protocol.md
// D0.9).
func Reserved(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-") || slices.Contains([]string{
		"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Forwarded", "Host",
		"Keep-Alive", "Last-Event-Id", "Origin", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}, name)
}

// Secure returns the TLS settings of the files, or nil for the defaults.
func (c *Config) Secure() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if t.RootCAs, err = x509.SystemCertPool(); err != nil {
			t.RootCAs = x509.NewCertPool() // the system trusts no authorities
		}
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file: there is no PEM certificate in it")
		}
	}
	if c.CertFile != "" {
		own, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}
