package streamable

import (
	"net/http"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
	"github.com/mcp-bridge/bridge/internal/adapters/upstream"
	"github.com/mcp-bridge/bridge/internal/conn"
)

// Upstream reaches one server by Streamable HTTP. Its connections share one
// pool of HTTP connections.
type Upstream struct {
	name   upstream.Name
	client *httpclient.Client
	o      upstream.Options
	limit  int // bytes of a message with its envelope
	eras   *conn.Eras

	do, stream func(*http.Request) (*http.Response, error) // the client's
}

var _ bridge.Adapter = (*Upstream)(nil)

// NewUpstream makes the adapter for the server of that name. c must be valid;
// the error is about the files that it names.
func NewUpstream(name string, c httpclient.Config, o upstream.Options) (*Upstream, error) {
	client, err := httpclient.New(c)
	if err != nil {
		return nil, err
	}
	o = o.Filled(name)
	return &Upstream{name: upstream.Name(name), client: client, o: o, limit: o.MaxMessage + upstream.EnvelopeRoom, eras: conn.NewEras(o.Era), do: client.Do, stream: client.Stream}, nil
}

// Close closes the HTTP connections that are not in use. Without it they end
// by themselves after Config.IdleTimeout.
func (a *Upstream) Close() { a.client.Close() }
