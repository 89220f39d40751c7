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
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Homes are the shared connections that live here, as other instances use them.
type Homes interface {
	// Mine reports whether this instance is the home of the connections to a server that
	// are alike by what is given, also from now on.
	Mine(ctx context.Context, server, alike string) bool
	// Lane serves an inner session: that of another instance's lane, whose server and
	// whose home the headers say.
	Lane(w http.ResponseWriter, r *http.Request)
	// Call makes a request of a client without a session. The error is ErrElsewhere when
	// this instance is not the home. Without alike it is for a call that waits here for its client.
	Call(ctx context.Context, server, alike string, r *bridge.Request) (*jsonrpc.Message, error)
}

// ErrElsewhere: the instance is not the home of the connection, and has not acted on the
// request.
var ErrElsewhere = errors.New("the connection does not live at this instance")

// Headers of what goes to a home.
const (
	ServerHeader  = "Bridge-Server"  // which server a lane is to
	AlikeHeader   = "Bridge-Home"    // what its connections have in common: see Encode
	ForwardHeader = "Bridge-Forward" // headers of the client, as far as they are forwarded: see EncodeHeader
	logsHeader    = "Bridge-Logs"
)

// Encode makes text one that can be the value of a header.
func Encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Decode returns what Encode was given.
func Decode(value string) (string, bool) {
	text, err := base64.RawURLEncoding.DecodeString(value)
	return string(text), err == nil
}

// EncodeHeader makes headers and an identity one value, that keeps how they are written: some
// are environment variables.
func EncodeHeader(h http.Header, id *identity.Identity) string {
	text, _ := json.Marshal(identity.Pack(h, id)) // nothing in it can fail
	return Encode(string(text))
}

// DecodeHeader returns what EncodeHeader was given.
func DecodeHeader(value string) (http.Header, *identity.Identity) {
	var h http.Header
	if text, ok := Decode(value); ok {
		_ = json.Unmarshal([]byte(text), &h) // what is none has come from no instance
	}
	return identity.Unpack(h)
}

// LanePath is where a home serves inner sessions.
const LanePath = version + "lane"

// Way returns how the lanes of other instances' connections are reached at one.
func (p *Peers) Way(m cluster.Member) remote.Config {
	l := p.link(m)
	return remote.Config{
		URL: (&url.URL{Scheme: "https", Host: host(m.ID), Path: LanePath}).String(), Proxy: "none", TLS: p.trust.client(m.ID), IdleTimeout: idle,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, m.Address) },
	}
}

// asked is what an instance is asked for a home.
type asked struct{ Server, Alike string }

// AskHome asks another instance whether it is a home, also from now on. The error is
// ErrElsewhere when it is not; any other one means that it was not reached.
func (p *Peers) AskHome(ctx context.Context, m cluster.Member, server, alike string) error {
	body, _ := json.Marshal(asked{server, alike}) // nothing in it can fail
	res, err := p.post(ctx, m, "home", nil, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, whole)
	if res.StatusCode != http.StatusNoContent {
		return ErrElsewhere
	}
	return nil
}

// post sends a request to another instance. It has no GetBody: nothing sends it again by
// itself.
func (p *Peers) post(ctx context.Context, m cluster.Member, path string, h http.Header, body []byte) (*http.Response, error) {
	u := url.URL{Scheme: "https", Host: m.Address, Path: version + path}
	if h == nil {
		h = http.Header{}
	}
	r := &http.Request{Method: http.MethodPost, URL: &u, Host: m.Address, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return p.link(m).http.RoundTrip(r.WithContext(ctx))
}

// Call makes a request of a client without a session at another instance, which is the
// home of the server's connections that are alike by what is given. ErrElsewhere: it is
// not. An Unsent error means that nothing of the request was sent.
func (p *Peers) Call(ctx context.Context, m cluster.Member, server, alike string, r *bridge.Request) (*jsonrpc.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.link(m).dead, cancel)()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	h := http.Header{principalHeader: {Encode(r.From.Principal)}, AlikeHeader: {Encode(alike)}, ForwardHeader: {EncodeHeader(r.From.Header, r.From.Identity)}}
	if r.Logs {
		h.Set(logsHeader, "1")
	}
	lost := func(err error) error {
		return &bridge.Error{Server: server, Kind: bridge.ErrLost, Err: err, Public: "the instance of the bridge that has its connection has ended during the call: whether the server has acted on it is not known"}
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
		_, _ = io.CopyN(io.Discard, res.Body, whole)
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
			a, err := jsonrpc.Parse(text)
			if err != nil {
				return nil, lost(err)
			}
			return a, nil
		case frameNote:
			if n, err := jsonrpc.Parse(text); err == nil && r.Back != nil {
				r.Back.Notify(n)
			}
		}
	}
}

// Unsent is the error of a request of which nothing was sent.
type Unsent struct{ Err error }

func (e *Unsent) Error() string { return "the instance cannot be reached: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Unsent) Unwrap() error { return e.Err }

// handleHomes serves what other instances ask of shared connections.
func (p *Peers) handleHomes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+version+"home", func(w http.ResponseWriter, r *http.Request) {
		var a asked
		switch err := json.NewDecoder(io.LimitReader(r.Body, whole)).Decode(&a); {
		case err != nil:
			http.Error(w, "not the name of a home", http.StatusBadRequest)
		case p.node.Await(r.Context(), "") == nil && p.o.Homes().Mine(r.Context(), a.Server, a.Alike):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	})
	mux.HandleFunc(LanePath, func(w http.ResponseWriter, r *http.Request) {
		name, ok := Decode(r.Header.Get(principalHeader))
		if !ok {
			http.Error(w, "not a principal", http.StatusBadRequest)
			return
		}
		p.o.Homes().Lane(w, r.WithContext(auth.WithPrincipal(r.Context(), name)))
	})
	mux.HandleFunc("POST "+version+"pool/{server}", p.pool)
}

// LaneHeader returns what the requests of an inner session say of it.
func LaneHeader(principal, server, alike string) map[string]string {
	return map[string]string{principalHeader: Encode(principal), ServerHeader: Encode(server), AlikeHeader: Encode(alike)}
}

// pool serves a request of a client without a session of another instance's.
func (p *Peers) pool(w http.ResponseWriter, r *http.Request) {
	principal, ok := Decode(r.Header.Get(principalHeader))
	alike, also := Decode(r.Header.Get(AlikeHeader))
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(p.o.MaxMessage)))
	if err != nil {
		return // who has asked has gone
	}
	m, err := jsonrpc.ParseUTF8(body)
	if !ok || !also || err != nil || !m.IsRequest() {
		http.Error(w, "not a request of a client without a session", http.StatusBadRequest)
		return
	}
	if p.node.Await(r.Context(), "") != nil {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	out := newFrameWriter(w)
	server := r.PathValue("server")
	g, no := gateway.NewStateless(server, principal, m)
	if no != nil {
		out.answer(no, m.ID)
		return
	}
	from := *g.From
	from.Header, from.Identity = DecodeHeader(r.Header.Get(ForwardHeader))
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out.cancel = cancel
	a, err := p.o.Homes().Call(ctx, server, alike, &bridge.Request{Message: m, From: &from, Header: from.Header, Identity: from.Identity, Back: out, Logs: r.Header.Get(logsHeader) != ""})
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
