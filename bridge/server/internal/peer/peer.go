// Package peer is the wire between the instances of a cluster: HTTP over mutual TLS.
// An instance sends on what it gets for a session that another one has, and copies the
// response back. Whoever knows the secret of the cluster is an instance; nobody else is
// spoken to.
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
	// Forward returns the headers of clients that some server gets now.
	Forward func() []string
	// Allowed says whether a principal may use a server here.
	Allowed func(server, principal string) error
	// Portable reports whether another instance can go on with a session.
	Portable func(r *session.Record) bool
	// Has reports whether the session of an id can be served here.
	Has func(id string) bool
	// Adopt goes on with a session that was taken over.
	Adopt func(id string, h session.Held) error
	// MCP and Messages serve the requests of other instances' clients.
	MCP, Messages func(server string, w http.ResponseWriter, r *http.Request)
	// Homes returns the shared connections that live here.
	Homes func() Homes
	// Workers returns what workers and their fronts ask of this instance.
	Workers func() Workers
	// MaxMessage bounds what is sent between instances for clients without sessions, in
	// bytes of a message.
	MaxMessage int
	// Dial connects to another instance; nil is TCP, by which a network that goes silent
	// ends a connection after three leases.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Peers are the other instances, as this one reaches them, and this one as they do.
type Peers struct {
	o      Options
	trust  *trust
	node   *cluster.Node
	http   *http.Server
	moves  *lru.Cache[string, string] // where sessions are that are not where their ids say
	served chan struct{}              // closed when the listener has ended

	connect time.Duration // bounds how long connecting to an instance may take

	leaving context.Context // ends when this instance serves no clients any more
	leave   context.CancelFunc

	mu       sync.Mutex // guards the rest
	links    map[string]*link
	adopting map[string]chan struct{} // by key; closed when it has ended
	closed   bool
}

// link is how one instance is reached.
type link struct {
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	most    time.Duration // that connecting may take
	tls     *tls.Config
	http    *http.Transport // by itself: a client of net/http adds a tenth to a short request
	dead    context.Context // ends when the instance is, and all connections with it
	bury    context.CancelFunc
}

// dial connects to the instance. A machine that has vanished ends no connection: they end
// here when it is found dead.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.most)
	defer cancel()
	defer context.AfterFunc(l.dead, cancel)()
	c, err := l.connect(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &mortal{c, context.AfterFunc(l.dead, func() { _ = c.Close() })}, nil
}

// secure connects to the instance for requests that this one sends on.
func (l *link) secure(ctx context.Context, address string) (net.Conn, error) {
	c, err := l.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.most)
	defer cancel()
	t := tls.Client(c, l.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &counted{Conn: t}, nil
}

// counted is a connection that knows how much was written to it.
type counted struct {
	net.Conn
	written atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// mortal is a connection that ends with its link.
type mortal struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (c *mortal) Close() error {
	c.forget()
	return c.Conn.Close()
}

var _ cluster.Peers = (*Peers)(nil)

// moved bounds what is remembered of sessions that live elsewhere.
const moved = 100_000

// New makes Peers. Join has to follow.
func New(o Options) (*Peers, error) {
	t, err := newTrust(o.ID, o.Secrets)
	if err != nil {
		return nil, err
	}
	p := &Peers{o: o, trust: t, connect: 2 * time.Second, links: map[string]*link{}, adopting: map[string]chan struct{}{}, served: make(chan struct{})}
	if o.Dial == nil {
		p.o.Dial = dialer(o.Lease).DialContext
	}
	p.leaving, p.leave = context.WithCancel(context.Background())
	p.moves, _ = lru.New[string, string](moved) // only a size below 1 fails
	p.http = &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * idle,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), TLSNextProto: noHTTP2,
	}
	return p, nil
}

// Join says which node this instance is.
func (p *Peers) Join(n *cluster.Node) { p.node = n }

// Listen serves the other instances on l until Close.
func (p *Peers) Listen(l net.Listener) {
	defer close(p.served)
	p.http.TLSConfig = p.trust.server()
	if err := p.http.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		p.o.Log.Error("the other instances are not served any more", "err", err)
	}
}

// Leave ends the streams of clients that other instances serve by this one: they come
// back to another.
func (p *Peers) Leave() { p.leave() }

// Close ends the listener, and what is under way to others. Listen has to have been called.
func (p *Peers) Close(ctx context.Context) {
	p.leave()
	if p.http.Shutdown(ctx) != nil {
		_ = p.http.Close() // what is left is broken off
	}
	<-p.served
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.links {
		l.bury()
		l.http.CloseIdleConnections()
	}
}

// idle is how long a connection without requests is kept.
const idle = time.Minute

// link returns how an instance is reached.
func (p *Peers) link(m cluster.Member) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[m.ID]; l != nil && l.dead.Err() == nil {
		return l
	}
	l := &link{connect: p.o.Dial, most: p.connect, tls: p.trust.client(m.ID)}
	l.dead, l.bury = context.WithCancel(context.Background())
	l.http = &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return l.secure(ctx, m.Address) },
		MaxIdleConnsPerHost: 256, IdleConnTimeout: idle, DisableCompression: true,
	}
	if p.closed {
		l.bury()
	}
	p.links[m.ID] = l
	return l
}

// Bury implements cluster.Peers.
func (p *Peers) Bury(id string) {
	p.mu.Lock()
	l := p.links[id]
	delete(p.links, id)
	p.mu.Unlock()
	if l != nil {
		l.bury()
		l.http.CloseIdleConnections()
	}
}

// Who returns the id of the instance that answers at an address.
func (p *Peers) Who(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.connect)
	defer cancel()
	conn, err := p.o.Dial(ctx, "tcp", address)
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

// Hello implements cluster.Peers.
func (p *Peers) Hello(ctx context.Context, to cluster.Member, h cluster.Hello) (a cluster.Hello, err error) {
	body, _ := json.Marshal(h) // nothing in it can fail
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{Scheme: "https", Host: to.Address, Path: version + "hello"}).String(), bytes.NewReader(body))
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

// Headers between instances. A client's never pass: see carried.
const (
	principalHeader = "Bridge-Principal"
	frontHeader     = "Bridge-Front" // set where the request comes in: it does not travel
	ownPrefix       = "Bridge-"
)

// Strip takes what only instances say to each other off a client's request (S-081).
func Strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, ownPrefix) {
			delete(h, name)
		}
	}
}

// Front returns the tag of the instance that has sent a request on, as its header says
// here; nothing for one that has come by itself.
func Front(h http.Header) string {
	if v := h[frontHeader]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// The path of a server; sessions of all servers as one have a name of their own.
const together = "_"

func nameOf(server string) string {
	if server == "" {
		return together
	}
	return server
}

type forwardedKey struct{}

// forwarded reports whether another instance has sent the request on.
func forwarded(r *http.Request) bool { return r.Context().Value(forwardedKey{}) != nil }

// handler serves the other instances.
func (p *Peers) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+version+"hello", func(w http.ResponseWriter, r *http.Request) {
		var h cluster.Hello
		if err := json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&h); err != nil || p.nameOf(r) != host(h.ID) {
			http.Error(w, "the hello is not of the instance that the certificate names", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.node.Answer(h)) // who has asked has gone
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
			if server == together {
				server = ""
			}
			f(server, w, r.WithContext(ctx))
		}
	}
	mux.HandleFunc(version+"s/{server}/mcp", serve(p.o.MCP))
	mux.HandleFunc("POST "+version+"s/{server}/messages", serve(p.o.Messages))
	p.handleHomes(mux)
	p.handleWorkers(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.node.Draining() { // a connection that ends under a request would cost that its answer
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	})
}

// nameOf returns the name in the certificate of who asks.
func (p *Peers) nameOf(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].DNSNames) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].DNSNames[0]
}

// carried returns the headers of a client's request that travel: not its key.
func (p *Peers) carried(r *http.Request) http.Header {
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
	for _, name := range p.o.Forward() {
		if values := r.Header[name]; len(values) > 0 && !strings.HasPrefix(name, ownPrefix) {
			h[name] = values
		}
	}
	h.Set(principalHeader, base64.RawURLEncoding.EncodeToString([]byte(auth.Principal(r.Context()))))
	return identity.Pack(h, auth.IdentityOf(r.Context()))
}
