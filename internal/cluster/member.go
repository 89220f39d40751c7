// Package cluster lets several instances of the bridge serve the same clients behind
// any load balancer. Each session has one owner, which a common store records.
//
// Calls never go through the store: an instance forwards a request to the owner of
// its session. A Node is one instance. It writes a sign of life to the store at
// intervals (a beat), and reads which other instances live. It begins requests only
// while no other instance can have taken its sessions over: see Node.Await.
package cluster

import (
	"context"
	"time"
)

// Member is one instance as the others see it.
type Member struct {
	ID       string // random, and new with each start
	Address  string // HOST:PORT for the other instances
	Version  string // of the program
	Draining bool   // it is about to stop, and takes no sessions
	Sessions int    // number of sessions that it owns
	Servers  string // a hash of the names of its servers
	Role     string `json:",omitempty"` // one of the roles below; empty is RoleAll
	Free     int    `json:",omitempty"` // number of further child processes that it could run for others
	// Running has the number of child processes that it runs for others, by server.
	Running map[string]int `json:",omitempty"`
}

// Roles of an instance.
const (
	RoleAll    = "all"    // it serves clients, and is a worker
	RoleFront  = "front"  // it serves clients
	RoleWorker = "worker" // it runs child processes for other instances
)

// Serves reports whether the instance serves clients.
func (m Member) Serves() bool { return m.Role != RoleWorker }

// Runs reports whether the instance is a worker.
func (m Member) Runs() bool { return m.Role != RoleFront }

// Left reports whether the instance is about to stop and owns no more sessions: nothing may be sent to it.
func (m Member) Left() bool { return m.Draining && m.Sessions == 0 }

// Seen is the result of a beat.
type Seen struct {
	Members []Member         // instances whose keys exist
	Run     string           // changes when the store may have lost its last writes
	Absent  bool             // the key of this instance did not exist
	Sealed  []string         // ids of members whose keys cannot be opened: they have another secret
	Hooks   map[string]int64 // by server, the number of the last webhook in the store
	Evicts  string           // the policy by which the store evicts keys; empty if it does not, or Seen had it before
}

// Registry lists the instances. Methods may be called concurrently.
type Registry interface {
	// Beat records that m lives for that long, and returns the living instances.
	Beat(ctx context.Context, m Member, life time.Duration) (Seen, error)
	// Present reports whether the key of an instance exists.
	Present(ctx context.Context, id string) (bool, error)
	// Leave removes the key of an instance.
	Leave(ctx context.Context, id string) error
}

// State is whether an instance may begin requests of its sessions.
type State string

const (
	// Sure is the state of an instance whose lease, by the store, has not ended.
	Sure State = "sure"
	// Frozen is the state while no instance reaches the store, so that none can take a session over.
	Frozen State = "frozen"
	// Isolated is the state of an instance that does not reach the store while others may.
	Isolated State = "isolated"
)

// Hello is a message by which two instances compare their states; the answer is one, too.
type Hello struct {
	ID      string `json:"incarnation"`
	State   State  `json:"state"`
	Store   bool   `json:"store"`             // the sender reaches the store
	Absent  bool   `json:"absent,omitempty"`  // the key of the receiver does not exist
	Leaving bool   `json:"leaving,omitempty"` // the sender stops
}

// Peers reaches other instances.
type Peers interface {
	// Hello sends a hello to an instance. It fails unless that very instance answers.
	Hello(ctx context.Context, to Member, h Hello) (Hello, error)
	// Disconnect breaks the connections to an instance that was found dead.
	Disconnect(id string)
}
