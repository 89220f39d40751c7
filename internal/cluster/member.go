// Package cluster lets several instances of the bridge serve the same clients behind
// any load balancer: each session has one owner, and who that is stands in a store
// that all of them use.
//
// Calls never go through the store: an instance that a request reaches sends it on
// to the owner. A Node is one instance. It tells the store every so often that it
// lives (a beat), and knows by that who else does. It begins requests only while
// it is sure that nobody can have taken its sessions over: see Node.Await.
package cluster

import (
	"context"
	"time"
)

// Member is one instance, as the others see it.
type Member struct {
	ID       string // random, and new with each start
	Address  string // HOST:PORT where the other instances reach it
	Version  string // of the program
	Draining bool   // it is about to stop, and takes no sessions
	Sessions int    // that it has
	Servers  string // a hash of the names of its servers
	Role     string `json:",omitempty"` // one of those below; empty is RoleAll
	Free     int    `json:",omitempty"` // child processes that it could still run for others
}

// What an instance does.
const (
	RoleAll    = "all"    // it serves clients, and runs what workers run
	RoleFront  = "front"  // it serves clients
	RoleWorker = "worker" // it runs what workers run
)

// Serves reports whether clients may be sent to the instance.
func (m Member) Serves() bool { return m.Role != RoleWorker }

// Runs reports whether the instance is a worker.
func (m Member) Runs() bool { return m.Role != RoleFront }

// Left reports whether the instance has given all its sessions away, and is about to end:
// nothing is to be sent to it any more.
func (m Member) Left() bool { return m.Draining && m.Sessions == 0 }

// Seen is what a beat has found.
type Seen struct {
	Members []Member         // whose keys are there
	Run     string           // changes when the store may have lost what was written last
	Absent  bool             // the key of who beats was not there
	Sealed  []string         // ids of members whose keys cannot be opened: they have another secret
	Hooks   map[string]int64 // by server, the number of the last webhook that an instance has put there
	Evicts  string           // the policy by which the store evicts what is written; empty if it does not, or was told before
}

// Registry is where instances find each other. Methods may be called concurrently.
type Registry interface {
	// Beat says that m lives for as long, and returns who does.
	Beat(ctx context.Context, m Member, life time.Duration) (Seen, error)
	// Present reports whether the key of an instance is there.
	Present(ctx context.Context, id string) (bool, error)
	// Leave removes the key of an instance.
	Leave(ctx context.Context, id string) error
}

// State says whether an instance may begin requests of its sessions.
type State string

// The states.
const (
	// Sure: it has the store's word that its lease has not ended.
	Sure State = "sure"
	// Frozen: nobody reaches the store, so nobody can take anything over.
	Frozen State = "frozen"
	// Isolated: it cannot reach the store, and others may.
	Isolated State = "isolated"
)

// Hello is what instances ask each other, and answer.
type Hello struct {
	ID      string `json:"incarnation"`
	State   State  `json:"state"`
	Store   bool   `json:"store"`             // it reaches the store
	Absent  bool   `json:"absent,omitempty"`  // the key of who is asked is not there
	Leaving bool   `json:"leaving,omitempty"` // who asks ends
}

// Peers reaches other instances.
type Peers interface {
	// Hello asks one. It fails unless that very instance answers.
	Hello(ctx context.Context, to Member, h Hello) (Hello, error)
	// Bury breaks off what is under way to one that was found dead.
	Bury(id string)
}
