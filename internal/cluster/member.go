// Package cluster lets several instances of the bridge serve the same clients behind any load balancer. Each session
// has one owner among the instances, which a common store records.
//
// Calls do not go through the store: an instance forwards a request to the owner of its session. A Node is one
// instance. At intervals it writes to the store that it is alive (a beat), and reads which other instances are alive.
// It begins requests only while no other instance can have taken over its sessions: see Node.Await.
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
	Draining bool   // the instance is about to stop, and takes no sessions
	Sessions int    // number of sessions that the instance owns
	Servers  string // hash of the names of its servers
	Role     string `json:",omitempty"` // one of the roles below; empty is RoleAll
	Free     int    `json:",omitempty"` // how many more child processes it can run for others
	// Running is how many child processes the instance runs for others, by server.
	Running map[string]int `json:",omitempty"`
}

// The roles of an instance.
const (
	RoleAll    = "all"    // it serves clients, and is a worker
	RoleFront  = "front"  // it serves clients
	RoleWorker = "worker" // it runs child processes for other instances
)

// Serves reports whether the instance serves clients.
func (m Member) Serves() bool { return m.Role != RoleWorker }

// Runs reports whether the instance is a worker.
func (m Member) Runs() bool { return m.Role != RoleFront }

// Left reports whether the instance is about to stop and owns no more sessions. Then nothing may be sent to it.
func (m Member) Left() bool { return m.Draining && m.Sessions == 0 }

// Seen is the answer of the store to a beat.
type Seen struct {
	Members []Member         // instances that are alive
	Run     string           // another value means that the store may have lost its last writes
	Absent  bool             // the store did not have the key of this instance
	Sealed  []string         // ids of members that have another secret, so that their keys cannot be opened
	Hooks   map[string]int64 // number of the last webhook in the store, by server
	Evicts  string           // policy by which the store evicts keys; empty if it does not, or an earlier Seen had the policy
}

// Registry lists the instances. Its methods may be called concurrently.
type Registry interface {
	// Beat records that m is alive for the time life, and returns the instances that are alive.
	Beat(ctx context.Context, m Member, life time.Duration) (Seen, error)
	// Present reports whether the key of an instance exists.
	Present(ctx context.Context, id string) (bool, error)
	// Leave removes the key of an instance.
	Leave(ctx context.Context, id string) error
}

// State says whether an instance may begin requests of its sessions.
type State string

const (
	// Sure means that the lease of the instance has not ended.
	Sure State = "sure"
	// Frozen means that no instance reaches the store, so that none can take over a session.
	Frozen State = "frozen"
	// Isolated means that the instance does not reach the store, while others may reach it.
	Isolated State = "isolated"
)

// Hello is the message by which two instances compare their states. Its answer is a Hello, too.
type Hello struct {
	ID      string `json:"incarnation"`
	State   State  `json:"state"`
	Store   bool   `json:"store"`             // the sender reaches the store
	Absent  bool   `json:"absent,omitempty"`  // the store does not have the key of the receiver
	Leaving bool   `json:"leaving,omitempty"` // the sender stops
}

// Peers reaches other instances.
type Peers interface {
	// Hello sends h to an instance. It returns an error unless that same instance, and not a successor, answers.
	Hello(ctx context.Context, to Member, h Hello) (Hello, error)
	// Disconnect breaks the connections to an instance that is dead.
	Disconnect(id string)
}
