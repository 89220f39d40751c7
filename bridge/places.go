package bridge

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Places knows which instance owns a connection that sessions or stateless clients of all instances share.
type Places interface {
	// Shared returns an Adapter for the connections to a server that sessions share. If this instance owns a
	// connection, the Adapter opens it with here, otherwise through the owner. all means that all clients share one
	// connection. forward lists what the server gets of client requests.
	Shared(server string, forward []Forward, all bool, here Adapter) Adapter
	// Home returns the path to the owner of a server's connections for stateless clients with that key: here, if this
	// instance owns them. The key has their kind and, behind a NUL, their principal and what else they share.
	Home(server, key string, here Away) Away
	// Instance returns the instance of that id, or nil if it has ended.
	Instance(ctx context.Context, server, id string) (Away, error)
}

// Away is the path to a server's connections at the instance that owns them, for requests of stateless clients.
type Away interface {
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
}

// LivesElsewhere is an Upstream that uses a connection of another instance. The server's guards run there.
type LivesElsewhere interface{ LivesElsewhere() }

// Owners stores, for all instances, which principal owns a task of a server. Its methods may be called concurrently,
// and take at most half a second.
type Owners interface {
	// Note stores the principal that owns a task of the server.
	Note(ctx context.Context, server, task, principal string) error
	// Noted reports for each of the tasks, in their order, whether the principal owns it.
	Noted(ctx context.Context, server, principal string, tasks []string) ([]bool, error)
}

// Cluster is what several instances of a bridge share. The zero value means a single instance.
type Cluster struct {
	// Instance is the name of this instance, a new one with each start. Empty means a random name.
	Instance string
	// Places knows the owners of shared connections. nil means that this instance owns all of them.
	Places Places
	// Owners stores the owners of tasks. nil means that this instance only knows the tasks that its clients created.
	Owners Owners
	// Secrets authenticate the instances to each other. The first seals the handles of stateless clients, and all of
	// them open handles. Without Secrets, handles are valid only at this instance.
	Secrets []string
}
