package bridge

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Places says where the connections live that several sessions, or clients without
// sessions, share over all instances of a bridge: each at one of them, its home.
type Places interface {
	// Shared returns an Adapter for the connections of a server that sessions share. It
	// opens them by here if this instance is their home, and otherwise as a part of the
	// home's own. all says that there is one for everybody; forward is what the server
	// gets of clients' headers.
	Shared(server string, forward []Forward, all bool, here Adapter) Adapter
	// Home returns the way to the home of the connections to a server that are for the
	// clients of that key: their kind and, behind a NUL, their principal, and what else they
	// have in common. It makes calls by here while this instance is the home.
	Home(server, key string, here Away) Away
	// Instance returns the instance of that id. It is nil when that has ended.
	Instance(ctx context.Context, server, id string) (Away, error)
}

// Away is the way to a server's connections at another instance, for requests of
// clients without sessions.
type Away interface {
	// Call is as that of an Upstream.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
}

// LivesElsewhere is an Upstream whose connection is another instance's, with the guards
// of the server.
type LivesElsewhere interface{ LivesElsewhere() }

// Owners remember for all instances whose the tasks are that servers have made. Methods may
// be called concurrently, and take half a second at most.
type Owners interface {
	// Note notes that a task of a server's is a principal's.
	Note(ctx context.Context, server, task, principal string) error
	// Noted says which of some tasks were noted as the principal's, in their order.
	Noted(ctx context.Context, server, principal string, tasks []string) ([]bool, error)
}

// Cluster says what several instances of a bridge have in common. The zero value stands
// for one instance.
type Cluster struct {
	// Instance is the name of this one, new with each start; empty means a random one.
	Instance string
	// Places says where connections live that the instances share; nil means here.
	Places Places
	// Owners say whose tasks are; nil means that each instance knows its own only.
	Owners Owners
	// Secrets are what the instances know each other by: the first seals what clients
	// without sessions keep, and all open it. None means a key of this process.
	Secrets []string
}
