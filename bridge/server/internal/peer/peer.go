// Package peer is the wire between the instances of a cluster: HTTP over mutual TLS. An instance forwards a request
// to the owner of its session, and copies the response back. A program with the secret of the cluster counts as an
// instance; no other program is served.
package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Options configure Peers.
type Options struct {
	ID      string   // of this instance
	Secrets []string // of the cluster: the first signs, and all are accepted
	Lease   time.Duration
	Log     *slog.Logger
	// MaxMessage bounds one message of a stateless client between instances, in bytes.
	MaxMessage int
	// Dialer connects to another instance. nil means TCP, where a silent network ends a connection after three
	// leases.
	Dialer Dialer
}

// Dialer connects to an address, as net.Dialer does.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Parts are the parts of this instance that Peers serve to the others.
type Parts struct {
	Node     *cluster.Node
	Gateway  Gateway
	Sessions Sessions
	Streams  Streams
	Owners   Owners
	Workers  Workers
}

// Gateway decides about the sessions of this instance, as gateway.Gateway does.
type Gateway interface {
	// Forwards returns the headers of clients that are forwarded to some server.
	Forwards() []string
	// Allowed returns an error unless a principal may use a server here.
	Allowed(server, principal string) error
	// Portable reports whether another instance can resume a session.
	Portable(r *session.Record) bool
}

// Sessions has the sessions of this instance, as streamable.Downstream does.
type Sessions interface {
	// Has reports whether the session of an id can be served here.
	Has(id string) bool
	// Adopt resumes a session that this instance took over.
	Adopt(id string, h session.Held) error
	// Serve serves a forwarded request of a client.
	Serve(server string, w http.ResponseWriter, r *http.Request)
}

// Streams serves the forwarded messages of clients of HTTP+SSE, as sse.Downstream does.
type Streams interface {
	Message(server string, w http.ResponseWriter, r *http.Request)
}

// Peers sends requests to the other instances, and serves their requests.
type Peers struct {
	o      Options
	parts  Parts
	trust  *trust
	node   *cluster.Node
	http   *http.Server
	moves  simplelru.LRUCache[string, string] // by session key, the owners of sessions whose id has the tag of another instance
	served chan struct{}                      // closed when Listen's server has ended

	connect time.Duration // timeout of connecting

	leaving context.Context // ends when this instance stops serving clients
	leave   context.CancelFunc

	mu       sync.Mutex // guards the rest
	links    map[string]*link
	adopting map[string]chan struct{} // by session key; closed when the takeover ends
	closed   bool
}

// link holds the connections to one instance.
type link struct {
	dialer     Dialer
	timeout    time.Duration // of connecting
	tls        *tls.Config
	http       *http.Transport // without http.Client, which makes short requests a tenth slower
	dead       context.Context // ends when the instance is found dead; then its connections close
	disconnect context.CancelFunc
}

// dial connects to the instance. The connection closes when the instance is found dead: a vanished machine closes
// none itself.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	defer context.AfterFunc(l.dead, cancel)()
	c, err := l.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &linkedConn{c, context.AfterFunc(l.dead, func() { _ = c.Close() })}, nil
}

// secure opens a TLS connection for forwarded requests.
func (l *link) secure(ctx context.Context, address string) (net.Conn, error) {
	c, err := l.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	t := tls.Client(c, l.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &counted{Conn: t}, nil
}

type counted struct {
	net.Conn
	written atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// linkedConn is a connection that closes with its link.
type linkedConn struct {
	net.Conn
	forget func() bool
}

func (l *linkedConn) Close() error {
	l.forget()
	return l.Conn.Close()
}

var _ cluster.Peers = (*Peers)(nil)

// moved bounds Peers.moves.
const moved = 100_000

// New makes Peers. The caller calls Join before Listen.
func New(o Options) (*Peers, error) {
	t, err := newTrust(o.ID, o.Secrets)
	if err != nil {
		return nil, err
	}
	p := &Peers{
		o:        o,
		trust:    t,
		connect:  2 * time.Second,
		links:    map[string]*link{},
		adopting: map[string]chan struct{}{},
		served:   make(chan struct{}),
	}
	if o.Dialer == nil {
		p.o.Dialer = dialer(o.Lease)
	}
	p.leaving, p.leave = context.WithCancel(context.Background())
	p.moves, _ = lru.New[string, string](moved) // only a size below 1 fails
	p.http = &http.Server{
		Handler:           p.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * idle,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		TLSNextProto:      noHTTP2,
	}
	return p, nil
}

// Join sets the parts of this instance.
func (p *Peers) Join(parts Parts) { p.parts, p.node = parts, parts.Node }

// Listen serves the other instances on l until Close.
func (p *Peers) Listen(l net.Listener) {
	defer close(p.served)
	p.http.TLSConfig = p.trust.server()
	if err := p.http.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		p.o.Log.Error("peer listener stopped", "err", err)
	}
}

// Leave ends forwarded streams of clients, which then reconnect to another instance.
func (p *Peers) Leave() { p.leave() }

// Close closes the listener and the connections to others. Listen must have been called.
func (p *Peers) Close(ctx context.Context) {
	p.leave()
	if p.http.Shutdown(ctx) != nil {
		_ = p.http.Close() // ends the remaining connections
	}
	<-p.served
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.links {
		l.disconnect()
		l.http.CloseIdleConnections()
	}
}

// idle is the time for which a connection without requests stays open.
const idle = time.Minute

func (p *Peers) link(m cluster.Member) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[m.ID]; l != nil && l.dead.Err() == nil {
		return l
	}
	l := &link{
		dialer:  p.o.Dialer,
		timeout: p.connect,
		tls:     p.trust.client(m.ID),
	}
	l.dead, l.disconnect = context.WithCancel(context.Background())
	l.http = &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return l.secure(ctx, m.Address) },
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     idle,
		DisableCompression:  true,
	}
	if p.closed {
		l.disconnect()
	}
	p.links[m.ID] = l
	return l
}

func (p *Peers) Disconnect(id string) {
	p.mu.Lock()
	l := p.links[id]
	delete(p.links, id)
	p.mu.Unlock()
	if l != nil {
		l.disconnect()
		l.http.CloseIdleConnections()
	}
}

// IDAt returns the id of the instance that answers at an address.
func (p *Peers) IDAt(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.connect)
	defer cancel()
	conn, err := p.o.Dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	t := tls.Client(conn, p.trust.anyone())
	defer t.Close()
	if err := t.HandshakeContext(ctx); err != nil {
		return "", err
	}
	state := t.ConnectionState()
	return idOf(&state), nil
}

const version = "/peer/v1/"

func (p *Peers) Hello(ctx context.Context, to cluster.Member, h cluster.Hello) (a cluster.Hello, err error) {
	body, _ := json.Marshal(h) // every member has a JSON form
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{
		Scheme: "https",
		Host:   to.Address,
		Path:   version + "hello",
	}).String(), bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	res, err := p.link(to).http.RoundTrip(r)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	err = json.NewDecoder(io.LimitReader(res.Body, 4<<10)).Decode(&a)
	return a, err
}

// These are the headers between instances. forwardedHeaders drops the headers of clients that have such names.
const (
	principalHeader = "Bridge-Principal"
	frontHeader     = "Bridge-Front" // the receiver sets it; no instance sends it
	ownPrefix       = "Bridge-"
)

// Strip removes the headers between instances from a client's request (S-081).
func Strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, ownPrefix) {
			delete(h, name)
		}
	}
}

// Front returns the tag of the instance that forwarded a request, or "" for a direct request.
func Front(h http.Header) string {
	if v := h[frontHeader]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// aggregateName is the name of all servers as one in paths.
const aggregateName = "_"

func nameOf(server string) string {
	if server == "" {
		return aggregateName
	}
	return server
}

type forwardedKey struct{}

// forwarded reports whether another instance forwarded the request.
func forwarded(r *http.Request) bool { return r.Context().Value(forwardedKey{}) != nil }

// handler serves the other instances.
func (p *Peers) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+version+"hello", func(w http.ResponseWriter, r *http.Request) {
		var h cluster.Hello
		if err := json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&h); err != nil || p.nameOf(r) != host(h.ID) {
			http.Error(w, "the hello names another instance than the certificate", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.node.Answer(h)) // the asking instance may be gone
	})
	serve := func(f func(string, http.ResponseWriter, *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			name, err := base64.RawURLEncoding.DecodeString(r.Header.Get(principalHeader))
			if err != nil {
				http.Error(w, "not a principal", http.StatusBadRequest)
				return
			}
			caller := auth.Caller{Principal: string(name)}
			r.Header, caller.Identity = identity.Unpack(r.Header)
			Strip(r.Header)
			if front := idOf(r.TLS); len(front) >= session.TagLength {
				r.Header[frontHeader] = []string{front[:session.TagLength]}
			}
			ctx := auth.WithCaller(context.WithValue(r.Context(), forwardedKey{}, true), caller)
			server := r.PathValue("server")
			if server == aggregateName {
				server = ""
			}
			f(server, w, r.WithContext(ctx))
		}
	}
	mux.HandleFunc(version+"s/{server}/mcp", serve(func(server string, w http.ResponseWriter, r *http.Request) { p.parts.Sessions.Serve(server, w, r) }))
	mux.HandleFunc("POST "+version+"s/{server}/messages", serve(func(server string, w http.ResponseWriter, r *http.Request) { p.parts.Streams.Message(server, w, r) }))
	p.handleOwners(mux)
	p.handleWorkers(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.node.Draining() { // a request on a connection that is about to close would lose its answer
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	})
}

// nameOf returns the name in the certificate of the asking instance; empty without a certificate.
func (p *Peers) nameOf(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].DNSNames) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].DNSNames[0]
}

// forwardedHeaders returns the headers of a client's request that are forwarded. The client's key is not forwarded.
func (p *Peers) forwardedHeaders(r *http.Request) http.Header {
	h := make(http.Header, 8)
	for name, values := range r.Header {
		switch name {
		case "Content-Type", "Accept", "Last-Event-Id", "Traceparent", "Tracestate", "Baggage":
			h[name] = values
		default:
			if strings.HasPrefix(name, "Mcp-") {
				h[name] = values
			}
		}
	}
	for _, name := range p.parts.Gateway.Forwards() {
		if values := r.Header[name]; len(values) > 0 && !strings.HasPrefix(name, ownPrefix) {
			h[name] = values
		}
	}
	h.Set(principalHeader, base64.RawURLEncoding.EncodeToString([]byte(auth.Principal(r.Context()))))
	return identity.Pack(h, auth.IdentityOf(r.Context()))
}
