package streamable

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// UpstreamOptions are the limits of a server's connections.
type UpstreamOptions struct {
	Log        *slog.Logger  // nil means slog.Default()
	MaxMessage int           // bytes of one message from the server; 0 means 16 MiB
	Timeouts   conn.Timeouts // of each call; 0 means none
	// Era says in which eras of the protocol the server is spoken to; empty means
	// bridge.EraAuto.
	Era conn.Era
	// Revision is the newest that a legacy server is offered; empty means no limit.
	Revision string
}

// Upstream reaches one server by Streamable HTTP. Its connections share one
// pool of HTTP connections.
type Upstream struct {
	name   string
	client *httpclient.Client
	o      UpstreamOptions
	limit  int // bytes of a message with its envelope
	eras   *conn.Eras

	do, stream func(*http.Request) (*http.Response, error) // the client's
}

var _ bridge.Adapter = (*Upstream)(nil)

// envelopeRoom is what a message may have beyond the limit on its payload: the
// names around it.
const envelopeRoom = 64 << 10

// NewUpstream makes the adapter for the server of that name. c must be valid;
// the error is about the files that it names.
func NewUpstream(name string, c httpclient.Config, o UpstreamOptions) (*Upstream, error) {
	client, err := httpclient.New(c)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("server", name)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	return &Upstream{name: name, client: client, o: o, limit: o.MaxMessage + envelopeRoom, eras: conn.NewEras(o.Era), do: client.Do, stream: client.Stream}, nil
}

// Close closes the HTTP connections that are not in use. Without it they end
// by themselves after Config.IdleTimeout.
func (a *Upstream) Close() { a.client.Close() }

// unopened says of a handshake what exchanges say of their calls.
func (a *Upstream) unopened(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || !errors.Is(e.Kind, bridge.ErrLost) && e.Kind != bridge.ErrUnsent {
		return err
	}
	return &bridge.Error{Server: a.name, Kind: bridge.ErrUnavailable, Public: "handshake: " + strings.TrimSuffix(e.Public, unknown), Err: e.Err}
}

// unknown ends what is said of calls that may have had an effect.
const unknown = "; whether it acted on the request is unknown"

// lost is the error of a call that may have reached the server.
func (a *Upstream) lost(why string, err error) *bridge.Error {
	return &bridge.Error{Server: a.name, Kind: bridge.ErrLost, Public: why + unknown, Err: err}
}

// invalid is the error of a call to which the server gave something that is no
// answer. It may have acted on it.
func (a *Upstream) invalid(why string, err error) *bridge.Error {
	return &bridge.Error{Server: a.name, Kind: bridge.ErrInvalid, Public: why + unknown, Err: err}
}

// declined is the error of a call that the server did not take, as it was.
func (a *Upstream) declined(why string, err error) *bridge.Error {
	return &bridge.Error{Server: a.name, Kind: bridge.ErrDeclined, Public: why, Err: err}
}

// unavailable is the error of a call that the server has not acted on.
func (a *Upstream) unavailable(why string, err error) *bridge.Error {
	return &bridge.Error{Server: a.name, Kind: bridge.ErrUnavailable, Public: why, Err: err}
}
