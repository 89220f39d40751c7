package bridge

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Places finds the instance that owns a connection which sessions or stateless clients share over all instances.
type Places interface {
	// Shared returns an Adapter for a server's connections that sessions share. It opens them with here if this
	// instance owns them, else through the owner. all means that all clients share one. forward lists the client
	// headers that the server gets.
	Shared(server string, forward []Forward, all bool, here Adapter) Adapter
	// Home returns the path to the owner of a server's connections for clients of that key. The key is their
	// kind and, behind a NUL, their principal and what else they share. If this instance is the owner, it calls
	// here.
	Home(server, key string, here Away) Away
	// Instance returns the instance of that id, or nil if it has ended.
	Instance(ctx context.Context, server, id string) (Away, error)
}

// Away is the path to a server's connections at another instance, for requests of stateless clients.
type Away interface {
	// Call is Upstream.Call.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
}

// LivesElsewhere is an Upstream over another instance's connection, which includes the server's guards.
type LivesElsewhere interface{ LivesElsewhere() }

// Owners stores the principals of the tasks that servers made, for all instances. Methods may be called
// concurrently, and take at most half a second.
type Owners interface {
	// Note stores the principal of a server's task.
	Note(ctx context.Context, server, task, principal string) error
	// Noted reports for each task, in order, whether it is stored as the principal's.
	Noted(ctx context.Context, server, principal string, tasks []string) ([]bool, error)
}

// Cluster is what several instances of a bridge share. The zero value means one instance.
type Cluster struct {
	// Instance is the name of this one, new with each start; empty means a random one.
	Instance string
	// Places finds the instance of shared connections; nil means this one.
	Places Places
	// Owners stores the owners of tasks; nil means that each instance has only its own.
	Owners Owners
	// Secrets authenticate the instances to each other. The first seals the handles of stateless clients, and
	// all open them. None means a key of this process.
	Secrets []string
}
