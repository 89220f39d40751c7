package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// ErrOtherTransport means that the server does not speak this transport, but perhaps the other one
// (protocol.md C2). Only this error leads to a try of the other transport.
var ErrOtherTransport = errors.New("the server does not speak this transport")

// Client sends requests to one server.
type Client struct {
	url    *url.URL
	header http.Header
	auth   Authorizer   // nil if requests get no tokens
	short  *http.Client // for requests with a bounded answer
	long   *http.Client // for streams that stay open, each on a connection of its own
}

// inFlight bounds the idle connections to a server that stay open. It is as high as the number of
// requests in flight, which would otherwise need new connections.
const inFlight = 512

const (
	dialLimit    = 10 * time.Second // of a connection, and of the TLS handshake
	keepAlive    = 15 * time.Second // between probes that detect dead peers
	maxRedirects = 3
	maxHeaders   = 64 << 10 // bytes of a response's head
)

// New returns a client. c must be valid. New reads the files that c names.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("url: not a URL") // err is left out, since its text has the URL and its secrets
	}
	setting.Fill(&c)
	secure := c.TLS
	if secure == nil {
		if secure, err = c.Secure(); err != nil {
			return nil, err
		}
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{
			Timeout:   dialLimit,
			KeepAlive: keepAlive,
			Control:   c.control(),
		}).DialContext
	}
	proxy := http.ProxyFromEnvironment
	switch c.Proxy {
	case "":
	case "none":
		proxy = nil
	default:
		at, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, errors.New("proxy: not a URL") // err is left out, since its text has the URL and its password
		}
		proxy = http.ProxyURL(at)
	}
	if c.Outside {
		o := newOutward("", false)
		o.blind = true
		proxy = o.asks(proxy)
		if c.Dial == nil {
			dial = o.dial
		}
	}
	transport := func() *http.Transport {
		return &http.Transport{
			Proxy: proxy, DialContext: dial,
			TLSClientConfig: secure.Clone(), TLSHandshakeTimeout: dialLimit,
			MaxIdleConnsPerHost: inFlight, IdleConnTimeout: c.IdleTimeout,
			DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
				if res.StatusCode != http.StatusOK {
					return proxyError(res.StatusCode)
				}
				return nil
			},
		}
	}
	short := transport()
	short.ForceAttemptHTTP2 = true
	// Streams use HTTP/1.1, in which a stream and its connection end together.
	long := transport()
	long.Protocols = new(http.Protocols)
	long.Protocols.SetHTTP1(true)
	long.ReadBufferSize, long.WriteBufferSize = 1<<10, 1<<10
	h := http.Header{}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
	streams := &streamTransport{
		dial:  long.DialContext,
		tls:   secure,
		proxy: proxy,
		other: long,
	}
	return &Client{
		url:    u,
		header: h,
		auth:   c.Auth,
		short:  &http.Client{Transport: short, CheckRedirect: sameOrigin},
		long:   &http.Client{Transport: streams, CheckRedirect: sameOrigin},
	}, nil
}

// URL returns the address of the server's endpoint.
func (c *Client) URL() *url.URL { return c.url }

// Request returns a request to u with the configured headers and those of forward, which win. If
// body is nil, the request has no body.
func (c *Client) Request(ctx context.Context, method string, u *url.URL, forward http.Header, body []byte) *http.Request {
	r := (&http.Request{
		Method:     method,
		URL:        u,
		Host:       u.Host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     make(http.Header, len(c.header)+len(forward)+6),
	}).WithContext(ctx)
	r.Header["User-Agent"], r.Header["Accept-Encoding"] = userAgent, accepted
	maps.Copy(r.Header, c.header)
	maps.Copy(r.Header, forward)
	for _, name := range repeats {
		if values, has := r.Header[name]; has {
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
	if body != nil {
		read := bytes.NewReader(body)
		r.Body, r.ContentLength = io.NopCloser(read), int64(len(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return r
}

// WithIdentity returns a context for the requests of a caller. If the settings say so, the client
// exchanges the caller's token. id may be nil.
func WithIdentity(ctx context.Context, id *identity.Identity) context.Context {
	return oauth.WithSubject(ctx, identity.SubjectOf(id))
}

// userAgent is the default of the header User-Agent.
var userAgent = []string{"mcp-bridge"}

// repeats are the headers with which net/http repeats a POST by itself, even if the server may have
// acted on the request (protocol.md D0.8). Request writes them in lower case, which net/http does not
// recognize and servers do.
var repeats = []string{"Idempotency-Key", "X-Idempotency-Key"}

// Repeat makes net/http send r over another connection if a reused one ends before the response. The
// server may then get r twice.
func Repeat(r *http.Request) { r.Header[repeats[0]] = nil } // net/http does not send a header without values

// Do sends a request with a bounded answer.
func (c *Client) Do(r *http.Request) (*http.Response, error) { return c.send(c.short, r) }

// Stream sends a request whose answer is a stream that stays open. It asks for no compression, since
// decompressing takes 45 KB of memory, and a compressor may delay events.
func (c *Client) Stream(r *http.Request) (*http.Response, error) {
	if _, set := c.header["Accept-Encoding"]; !set {
		r.Header["Accept-Encoding"] = plain
	}
	return c.send(c.long, r)
}

// Close closes connections that are not in use.
func (c *Client) Close() {
	c.short.CloseIdleConnections()
	c.long.CloseIdleConnections()
}

// clean removes possible secrets from the text of an error: the URL, and quotes of the server's
// response. The result wraps the original error.
func clean(res *http.Response, err error) (*http.Response, error) {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err == nil {
		return res, nil
	}
	text := err.Error()
	if e, ok := errors.AsType[textproto.ProtocolError](err); ok { // ends with the malformed line
		text, _, _ = strings.Cut(string(e), ":")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok { // this error quotes only certificates
		text = quoted.ReplaceAllString(text, "…")
	} else {
		text, _, _ = strings.Cut(text, " (possibly because of ") // a guess about other certificates
	}
	if text += advice(err); text != err.Error() {
		err = &cleaned{text, err}
	}
	return res, err
}

// advice returns what to do about a TLS error, or "" for other errors.
func advice(err error) string {
	if !TLSFault(err) {
		return ""
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return " (name the certificate of its CA: in ca_file of the server, or in the variable SSL_CERT_FILE)"
	}
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return " (use a name that is in the certificate, or give the server another one)"
	}
	if _, bad := errors.AsType[*tls.CertificateVerificationError](err); bad {
		return ""
	}
	return " (it speaks no TLS at this address: write http:// if that is meant)"
}

// wantsTLS returns an error if a server refused a request because the request came without TLS. Many
// servers say so in a response 400. After an error, the body is closed.
func wantsTLS(res *http.Response) error {
	if res.StatusCode != http.StatusBadRequest || res.Request.URL.Scheme != "http" {
		return nil
	}
	const enough = 1 << 10                                   // bytes in which servers say so
	begin, _ := io.ReadAll(io.LimitReader(res.Body, enough)) // the next read has the same error
	if !forTLS.Match(begin) {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(begin), res.Body), res.Body}
		return nil
	}
	_ = res.Body.Close()
	return &cleaned{"it speaks HTTPS at this address: write https://", http.ErrSchemeMismatch}
}

// forTLS matches what servers answer to a request without TLS at a port for TLS.
var forTLS = regexp.MustCompile(`(?i)HTTP request (?:was sent )?to (?:an )?HTTPS (?:server|port)|plain HTTP to an SSL-enabled`)

// quoted matches the quoted parts in errors of net/http, such as addresses and texts of a server.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"?`)

// cleaned is an error with another text.
type cleaned struct {
	text string
	err  error
}

func (c *cleaned) Error() string { return c.text }
func (c *cleaned) Unwrap() error { return c.err }

// RedirectError is the error of a redirect that is not followed. The server has not acted on the
// request. A client may see the text.
type RedirectError string

// Error implements error.
func (r RedirectError) Error() string { return string(r) }

// sameOrigin allows only redirects to the same origin that repeat the request with the same method
//
func sameOrigin(r *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Header.Get("Referer") == "" {
		r.Header.Del("Referer") // net/http sets it to the URL, whose query may have keys
	}
	switch {
	case len(via) > maxRedirects:
		return RedirectError(fmt.Sprintf("it redirects more than %d times: configure the address that it means", maxRedirects))
	case !SameOrigin(r.URL, first.URL):
		return RedirectError("it redirects to another origin, which is not followed: configure the address that it means")
	case r.Method != first.Method:
		return RedirectError("it redirects in a way that turns POST into GET: configure the address that it means")
	}
	if change, ok := r.Context().Value(onRedirect{}).(func(*http.Request) error); ok {
		return change(r)
	}
	return nil
}

type onRedirect struct{}

// OnRedirect returns a context for a request. Before a redirect is followed, the client calls change
// with the next request, for example to sign it: a signature is valid for one path only.
func OnRedirect(ctx context.Context, change func(next *http.Request) error) context.Context {
	return context.WithValue(ctx, onRedirect{}, change)
}

// SameOrigin reports whether two addresses have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	case u.Scheme == "socks5", u.Scheme == "socks5h":
		return "1080"
	}
	return "80"
}

// Unsent reports whether err shows that nothing of the request was sent, since there was no
// connection.
func Unsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, op.Op) {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	_, refused := errors.AsType[proxyError](err)
	return refused || TLSFault(err)
}

// TLSFault reports whether err shows that the server's certificate is invalid, or that the server
// speaks no TLS. Nothing of the request was sent. Trying again soon is useless.
func TLSFault(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return bad || plain || errors.Is(err, http.ErrSchemeMismatch)
}

// proxyError is the error of a proxy that refused to connect: its HTTP status.
type proxyError int

func (p proxyError) Error() string {
	return fmt.Sprintf("the proxy refuses to connect (HTTP %d)", int(p))
}
