package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Owners serves the shared connections of this instance to other instances.
type Owners interface {
	// Owns reports whether this instance owns the connection to a server with that affinity key. If the connection
	// has no owner, Owns may make this instance the owner.
	Owns(ctx context.Context, server, affinity string) bool
	// ServeTunnel serves a tunnel. Its headers name the server and the affinity key.
	ServeTunnel(w http.ResponseWriter, r *http.Request)
	// Call makes a request of a stateless client. The error is ErrElsewhere when this instance is not the owner.
	Call(ctx context.Context, server, affinity string, r *bridge.Request) (*jsonrpc.Message, error)
	// Leave closes the tunnels of this instance to a stopping owner. Leave waits until no tunnel or request uses the
	// owner.
	Leave(ctx context.Context, instance string) error
}

// ErrElsewhere means that the instance does not own the connection, and did not act on the request.
var ErrElsewhere = errors.New("this instance does not own the connection")

// These are the headers of requests to an owner. Their names must not change: instances of different versions send
// them to each other.
const (
	ServerHeader   = "Bridge-Server"  // the name of the server
	AffinityHeader = "Bridge-Home"    // the affinity key of the connection: see Encode
	ForwardHeader  = "Bridge-Forward" // the forwarded headers of the client: see EncodeHeader
	logsHeader     = "Bridge-Logs"    // set if Request.Logs is set
)

// Encode encodes text as the value of a header.
func Encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Decode reverses Encode.
func Decode(value string) (string, bool) {
	text, err := base64.RawURLEncoding.DecodeString(value)
	return string(text), err == nil
}

// EncodeHeader encodes headers and an identity as one value. EncodeHeader keeps the case of names: some are
// environment variables.
func EncodeHeader(h http.Header, id *identity.Identity) string {
	text, _ := json.Marshal(identity.Pack(h, id)) // headers always have a JSON form
	return Encode(string(text))
}

// DecodeHeader reverses EncodeHeader.
func DecodeHeader(value string) (http.Header, *identity.Identity) {
	var h http.Header
	if text, ok := Decode(value); ok {
		_ = json.Unmarshal([]byte(text), &h) // every instance sends valid JSON
	}
	return identity.Unpack(h)
}

const OwnerTunnelPath = version + "lane"

// OwnerTunnel returns the client settings of tunnels to an owner.
func (p *Peers) OwnerTunnel(m cluster.Member) remote.Config {
	return remote.Config{
		URL: (&url.URL{
			Scheme: "https",
			Host:   host(m.ID),
			Path:   OwnerTunnelPath,
		}).String(),
		Proxy:       "none",
		TLS:         p.trust.client(m.ID),
		IdleTimeout: idle,
		// An instance that was found dead may be back, with a link of its own.
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.link(m).dial(ctx, m.Address) },
	}
}

// ownerQuery is the question whether an instance owns a connection. The names of its members are part of
// the wire between instances.
type ownerQuery struct {
	Server   string
	Affinity string `json:"Alike"`
}

// AskOwner asks another instance whether it owns a connection. The question may make that instance the owner. The
// error is ErrElsewhere if that instance is not the owner. Any other error means that the question got no answer.
func (p *Peers) AskOwner(ctx context.Context, m cluster.Member, server, affinity string) error {
	body, _ := json.Marshal(ownerQuery{server, affinity}) // strings always have a JSON form
	res, err := p.post(ctx, m, "home", nil, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxBuffered)
	if res.StatusCode != http.StatusNoContent {
		return ErrElsewhere
	}
	return nil
}

// These are the parts of a stopping instance that others leave: its shared connections, or its processes as a worker.
const (
	LeaveOwner  = "home"
	LeaveWorker = "worker"
)

const leavePath = "leave/"

// AskLeave asks another instance to leave this one. AskLeave returns when that instance confirmed, is unreachable or
// is found dead, or when ctx ends. AskLeave reports whether the instance confirmed or is dead; an instance of an
// older version never confirms.
func (p *Peers) AskLeave(ctx context.Context, m cluster.Member, what string) (left bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dead := p.link(m).dead
	defer context.AfterFunc(dead, cancel)()
	if status, _, err := p.ask(ctx, m, leavePath+what, nil); err != nil || status != http.StatusNoContent {
		p.o.Log.Debug("another instance did not confirm that it closed its tunnels to this instance", "instance", m.ID[:min(len(m.ID), session.TagLength)], "status", status, "err", err)
		return dead.Err() != nil
	}
	return true
}

// post sends a request to another instance. post sets no GetBody, so that net/http never sends it twice.
func (p *Peers) post(ctx context.Context, m cluster.Member, path string, h http.Header, body []byte) (*http.Response, error) {
	u := url.URL{
		Scheme: "https",
		Host:   m.Address,
		Path:   version + path,
	}
	if h == nil {
		h = http.Header{}
	}
	r := &http.Request{
		Method:     http.MethodPost,
		URL:        &u,
		Host:       m.Address,
		Header:     h,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return p.link(m).http.RoundTrip(r.WithContext(ctx))
}

// Call makes a request of a stateless client at the owner of a connection. The error is ErrElsewhere when the
// instance is not the owner, and an Unsent when nothing of the request was sent.
func (p *Peers) Call(ctx context.Context, m cluster.Member, server, affinity string, r *bridge.Request) (*jsonrpc.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.link(m).dead, cancel)()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	h := http.Header{
		principalHeader: {Encode(r.From.Principal)},
		AffinityHeader:  {Encode(affinity)},
		ForwardHeader:   {EncodeHeader(r.From.Header, r.From.Identity)},
	}
	if r.Logs {
		h.Set(logsHeader, "1")
	}
	lost := func(err error) error {
		return &bridge.Error{
			Server: server,
			Kind:   bridge.ErrLost,
			Err:    err,
			Public: "the instance of the bridge that owns its connection ended during the call: whether the server acted on it is unknown",
		}
	}
	res, err := p.post(traced, m, "pool/"+server, h, r.Append(nil, r.ID, r.Token()))
	switch {
	case err != nil && !connected.Load():
		return nil, &Unsent{err}
	case err != nil:
		return nil, lost(err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusMisdirectedRequest:
		_, _ = io.CopyN(io.Discard, res.Body, maxBuffered)
		return nil, ErrElsewhere
	default:
		return nil, lost(errors.New(res.Status))
	}
	in := &frames{in: bufio.NewReader(res.Body), most: p.o.MaxMessage}
	for {
		kind, text, err := in.next()
		if err != nil {
			return nil, lost(err)
		}
		switch kind {
		case frameError:
			return nil, decodeError(server, text)
		case frameAnswer:
			m, err := jsonrpc.Parse(text)
			if err != nil {
				return nil, lost(err)
			}
			return m, nil
		case frameNotification:
			if m, err := jsonrpc.Parse(text); err == nil && r.Back != nil {
				r.Back.Notify(m)
			}
		}
	}
}

// Unsent is the error of a request that was not sent.
type Unsent struct{ Err error }

func (u *Unsent) Error() string { return "the instance cannot be reached: " + u.Err.Error() }

func (u *Unsent) Unwrap() error { return u.Err }

// handleOwners registers the handlers for shared connections.
func (p *Peers) handleOwners(mux *http.ServeMux) {
	mux.HandleFunc("POST "+version+"home", func(w http.ResponseWriter, r *http.Request) {
		var o ownerQuery
		switch err := json.NewDecoder(io.LimitReader(r.Body, maxBuffered)).Decode(&o); {
		case err != nil:
			http.Error(w, "not a question about an owner", http.StatusBadRequest)
		case p.node.Await(r.Context(), "") == nil && p.parts.Owners.Owns(r.Context(), o.Server, o.Affinity):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	})
	mux.HandleFunc(OwnerTunnelPath, func(w http.ResponseWriter, r *http.Request) {
		name, ok := Decode(r.Header.Get(principalHeader))
		if !ok {
			http.Error(w, "not a principal", http.StatusBadRequest)
			return
		}
		p.parts.Owners.ServeTunnel(w, r.WithContext(auth.WithPrincipal(r.Context(), name)))
	})
	mux.HandleFunc("POST "+version+"pool/{server}", p.pool)
	mux.HandleFunc("POST "+version+leavePath+"{what}", func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch r.PathValue("what") {
		case LeaveOwner:
			err = p.parts.Owners.Leave(r.Context(), idOf(r.TLS))
		case LeaveWorker:
			err = p.parts.Workers.Leave(r.Context(), idOf(r.TLS))
		default:
			err = errors.ErrUnsupported
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// OwnerTunnelHeaders returns the headers of the requests of a tunnel to an owner.
func OwnerTunnelHeaders(principal, server, affinity string) map[string]string {
	return map[string]string{principalHeader: Encode(principal), ServerHeader: Encode(server), AffinityHeader: Encode(affinity)}
}

// pool serves a request of a stateless client of another instance.
func (p *Peers) pool(w http.ResponseWriter, r *http.Request) {
	principal, ok := Decode(r.Header.Get(principalHeader))
	affinity, also := Decode(r.Header.Get(AffinityHeader))
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(p.o.MaxMessage)))
	if err != nil {
		return // the asking instance is gone
	}
	m, err := jsonrpc.ParseUTF8(body)
	if !ok || !also || err != nil || !m.IsRequest() {
		http.Error(w, "not a request of a stateless client", http.StatusBadRequest)
		return
	}
	if p.node.Await(r.Context(), "") != nil {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	out := newFrameWriter(w)
	server := r.PathValue("server")
	s, no := gateway.NewStateless(server, principal, m)
	if no != nil {
		out.answer(no, m.ID)
		return
	}
	from := *s.From
	from.Header, from.Identity = DecodeHeader(r.Header.Get(ForwardHeader))
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out.cancel = cancel
	a, err := p.parts.Owners.Call(ctx, server, affinity, &bridge.Request{
		Message:  m,
		From:     &from,
		Header:   from.Header,
		Identity: from.Identity,
		Back:     out,
		Logs:     r.Header.Get(logsHeader) != "",
	})
	switch {
	case errors.Is(err, ErrElsewhere):
		out.close()
		w.WriteHeader(http.StatusMisdirectedRequest)
	case err != nil:
		out.fail(err)
	default:
		out.answer(a, m.ID)
		a.Release()
	}
}
