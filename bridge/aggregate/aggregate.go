// Package aggregate offers several servers as one: to sessions, and to clients
// without sessions. Tools and prompts have their server's prefix before their
// names, lists are joined, and a server that cannot be had is left out until it
// can.
//
// It opens connections by what it is given of each server, and each of them is one
// with all its guards. What a principal may not use, its servers do not list.
package aggregate

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// Server is one of the servers: what is needed of it. Its functions may be called
// concurrently.
type Server struct {
	Name   string // without spaces or colons
	Prefix string // of the names that clients see; may be empty
	Log    *slog.Logger
	// Remembers says that a list may be kept, and given to whoever asks on behalf of
	// the same principal.
	Remembers bool
	// Stateless is what calls of clients without sessions go to. It is not closed.
	Stateless bridge.Upstream
	// Session returns what the calls of a session of from go to. Nothing is opened
	// yet. What the server says by itself goes to to.
	Session func(from *bridge.Caller, to bridge.Client) (bridge.Upstream, error)
	// Serves reports whether a principal may use the server, and Shows whether a
	// tool or prompt of it, by the name that the server's own clients see.
	Serves func(principal string) bool
	Shows  func(k list.Kind, name, principal string) bool
	// Greeting returns what the server said last on behalf of a principal, or nil.
	Greeting func(principal string) *bridge.Greeting
	// Failing returns why the server could not be had a moment ago, or nil.
	Failing func() error
	// Await has told called once when the server can be had, unless stop was called.
	Await func(from *bridge.Caller, told func()) (stop func())
	// Missed is told of what may have changed while nobody listened, before clients
	// are.
	Missed func(n *jsonrpc.Message)
}

// Options are what there is to know beside the servers.
type Options struct {
	Servers []Server        // the first counts of two that have the same
	Info    []byte          // serverInfo of all as one, raw JSON
	Params  []byte          // of initialize, on behalf of clients without sessions
	Force   context.Context // ends when what is being closed has no more time
	// Following returns life, as a part of the trace that call belongs to.
	Following func(life, call context.Context) context.Context
}

// Aggregate is all servers as one.
type Aggregate struct {
	o        Options
	servers  []*server
	named    map[string]*server
	prefixes map[string]*server // by the prefix that only they have
	lengths  []int              // of those, the longest first
}

// server is one of the servers, and what it has listed.
type server struct {
	Server
	order  int  // of the configuration, by which members are sorted
	rivals bool // other servers' prefixes are such that names can be the same

	mu       sync.Mutex          // guards catalogs
	catalogs map[string]*catalog // by principal
}

// New makes one of several servers.
func New(o Options) *Aggregate {
	a := &Aggregate{o: o, named: map[string]*server{}, prefixes: map[string]*server{}}
	for i, one := range o.Servers {
		s := &server{Server: one, order: i, catalogs: map[string]*catalog{}}
		a.servers = append(a.servers, s)
		a.named[s.Name] = s
	}
	for _, s := range a.servers {
		for _, other := range a.servers {
			if s != other && (strings.HasPrefix(s.Prefix, other.Prefix) || strings.HasPrefix(other.Prefix, s.Prefix)) {
				s.rivals = true
			}
		}
		if _, taken := a.prefixes[s.Prefix]; !taken && s.Prefix != "" {
			a.prefixes[s.Prefix] = s
			a.lengths = append(a.lengths, len(s.Prefix))
		}
	}
	slices.Sort(a.lengths)
	a.lengths = slices.Compact(a.lengths)
	slices.Reverse(a.lengths)
	return a
}

// Session returns what the calls of a session go to, which is told at to.
func (a *Aggregate) Session(from *bridge.Caller, to bridge.Client) bridge.Upstream {
	return newMerge(a, from, to)
}

// Stateless returns what the calls of all clients without sessions go to.
func (a *Aggregate) Stateless() *Stateless {
	return &Stateless{a: a, merges: map[string]*shared{}}
}
