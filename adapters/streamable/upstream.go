package streamable

import (
	"net/http"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// Upstream is the adapter for one server over Streamable HTTP. Its connections share one pool of
// HTTP connections.
type Upstream struct {
	name   conn.Name
	client *remote.Client
	o      conn.Options
	limit  int // of a message with its envelope, in bytes
	eras   *conn.Eras

	do, stream func(*http.Request) (*http.Response, error) // the methods Do and Stream of client
}

var _ bridge.Adapter = (*Upstream)(nil)

// NewUpstream returns the adapter for the server of that name. c must be valid; the error is about
// the files that c names.
func NewUpstream(name string, c remote.Config, o conn.Options) (*Upstream, error) {
	client, err := remote.New(c)
	if err != nil {
		return nil, err
	}
	o = o.Filled(name)
	return &Upstream{
		name:   conn.Name(name),
		client: client,
		o:      o,
		limit:  o.MaxMessage + conn.EnvelopeRoom,
		eras:   conn.NewEras(o.Era),
		do:     client.Do,
		stream: client.Stream,
	}, nil
}

// Close closes idle HTTP connections. Without Close, they end after remote.Config.IdleTimeout.
func (u *Upstream) Close() { u.client.Close() }
