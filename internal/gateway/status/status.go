// Package status says in plain data how servers fare, for those who show it.
package status

import (
	"time"

	"github.com/mcp-bridge/bridge/internal/guard/cache"
	"github.com/mcp-bridge/bridge/internal/guard/limits"
)

// Server says how a server fares.
//
// It has many fields: each is something that is shown.
type Server struct {
	Name     string    // of the server
	Usable   bool      // it works, or nothing speaks against trying it
	State    string    // "ready", "starting", "idle" or "failing"
	Reason   string    // of failing, for people; it may name programs and files
	Err      error     // the same with all that is known, for whoever runs the bridge alone
	Since    time.Time // it is failing
	Lanes    int       // connections open or being opened
	Sessions int       // open; those of all servers as one count where there is one server
	// Calls are the requests of clients under way, when somebody watches them.
	Calls    int
	Parked   int    // calls that wait for clients without sessions to come back
	Revision string // what the last handshake agreed on; empty before the first
	// Opened counts the connections that were opened, Failures those that could not
	// be, or whose server was out of reach, Losses those that ended by themselves,
	// and Restarts the openings after that.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after the server has recovered from
	// it. It may name programs and files.
	Last   string
	LastAt time.Time // zero when there was none
	// Status is what is under way, as Limits count it. Queued has also those that
	// wait for a connection of their own, and Refused what came too often, as rate.
	limits.Status
	// Breaker is the state of the circuit breaker: "closed", "open" when the server
	// gets no calls, or no new connection, until RetryAt, "half-open" while one call
	// tries it, and "off".
	Breaker string
	RetryAt time.Time
	Trips   uint64 // how often the breaker has opened
	// Cache says what is kept of what it lists.
	Cache cache.Status
}
