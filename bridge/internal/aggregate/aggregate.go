// Package aggregate offers several servers as one, to sessions and to stateless clients. Names of tools and prompts
// start with their server's prefix. The package merges lists, and leaves out a server that fails until it works
// again.
//
// Each connection comes from the server's Host, and has all guards of that server. A principal sees only what the
// servers list for it.
package aggregate

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Server is one of the servers that an Aggregate offers.
type Server struct {
	Name   string // without spaces or colons
	Prefix string // starts the names that clients see; may be empty; read by Set only
	Log    *slog.Logger
	// Stateless takes the calls of stateless clients. The package does not close it.
	Stateless bridge.Upstream
	Host
}

// Host gives an Aggregate access to one server. Its methods may be called concurrently.
type Host interface {
	// Stores reports whether a list may be stored, and served to other clients of the same principal.
	Stores() bool
	// Session returns the Upstream for a session of from. The first call opens the connection. to gets the messages
	// that the server sends without a call.
	Session(from *bridge.Caller, to bridge.Client) (bridge.Upstream, error)
	// Serves reports whether a principal may use the server. Shows reports whether a principal sees a tool or
	// prompt, by the name that the server's own clients see.
	Serves(principal string) bool
	Shows(k list.Kind, name, principal string) bool
	// Greeting returns the server's last greeting for a principal, or nil.
	Greeting(principal string) *bridge.Greeting
	// Failing returns why the last attempt to open the server failed, or nil.
	Failing() error
	// Since returns when the server began to fail; zero while it works.
	Since() time.Time
	// Await calls told once, when the server can be opened again, unless stop is called first.
	Await(from *bridge.Caller, told func()) (stop func())
	// Heard makes the cache drop the answers that the notification m makes stale. Heard is called before clients get
	// m.
	Heard(m *jsonrpc.Message)
}

// Options configure an Aggregate.
type Options struct {
	Info    []byte           // serverInfo of the aggregate, raw JSON
	Params  []byte           // of initialize, on behalf of stateless clients
	Force   context.Context  // ends when the time to close connections is over
	Tracing *tracing.Tracing // may be nil
	// Start returns how long a list waits for servers that are still starting.
	Start func() time.Duration
	// Shows reports whether a client of the address may see an item, by the name that clients see.
	Shows func(k list.Kind, external string) bool
}

// Aggregate offers several servers as one.
type Aggregate struct {
	o      Options
	merges *merges

	mu   sync.Mutex // guards the rest
	now  *view
	open map[*session]struct{}
}

// view is an immutable set of servers. Set replaces it.
type view struct {
	servers     []*server
	named       map[string]*server
	prefix      map[*server]string
	conflicting map[*server]bool   // servers whose prefix begins the prefix of another server, or begins with it: their names can collide
	prefixes    map[string]*server // the first server of each prefix
	lengths     []int              // of the prefixes, the longest first
	old         []oldPrefix        // the newest last
}

// server is one of the servers, and its catalogues.
type server struct {
	*Server
	cut     [list.Kinds]atomic.Bool // a warning was logged: the list was cut
	covered atomic.Bool             // a warning was logged: an earlier server has the same user interface

	mu       sync.Mutex          // guards catalogs
	catalogs map[string]*catalog // by principal
}

// New returns an Aggregate without servers. Set adds them.
func New(o Options) *Aggregate {
	return &Aggregate{
		o:      o,
		merges: newMerges(),
		now:    &view{},
		open:   map[*session]struct{}{},
	}
}

// Set replaces the servers. If two have the same prefix, the first gets the names. A server whose pointer stays keeps
// its connections, even if its prefix changes. Set notifies clients of lists that may have changed. Calls to a
// removed server continue until leave is called with that server: leave closes the connections to it.
//
// Calls of Set must not overlap.
func (a *Aggregate) Set(servers []*Server) (leave func(ctx context.Context, gone *Server)) {
	a.mu.Lock()
	a.now = a.now.with(servers)
	v := a.now
	open := slices.Collect(maps.Keys(a.open))
	a.mu.Unlock()
	var left []*member
	for _, s := range open {
		left = append(left, s.update(v)...)
	}
	a.merges.forget()
	return func(ctx context.Context, gone *Server) {
		var wg sync.WaitGroup
		for _, m := range left {
			if m.s.Server == gone {
				wg.Go(func() { m.close(ctx) })
			}
		}
		wg.Wait()
	}
}

// oldPrefix is a prefix that a server had until recently. Clients may still use names with that prefix, if no other
// server has the names.
type oldPrefix struct {
	prefix, server string
	until          time.Time
}

const (
	oldPrefixTTL   = 5 * time.Minute
	maxOldPrefixes = 8 // old prefixes of all servers together
)

// oldPrefixes returns the prefixes that clients may still use after next replaces v, the newest last. There are at
// most maxOldPrefixes, and each ends oldPrefixTTL after the server lost the prefix.
func (v *view) oldPrefixes(next *view, now time.Time) (all []oldPrefix) {
	stays := func(o oldPrefix) bool {
		s := next.named[o.server]
		return s != nil && next.prefix[s] != o.prefix && now.Before(o.until)
	}
	was := v.old
	for _, s := range v.servers {
		f := oldPrefix{v.prefix[s], s.Name, now.Add(oldPrefixTTL)}
		if stays(f) {
			was = append(slices.DeleteFunc(slices.Clone(was), func(o oldPrefix) bool { return o.server == f.server && o.prefix == f.prefix }), f)
		}
	}
	for _, o := range was {
		if stays(o) {
			all = append(all, o)
		}
	}
	return all[max(0, len(all)-maxOldPrefixes):]
}

// with returns the view of servers. Servers that v has keep their catalogues, unless they have another prefix.
func (v *view) with(servers []*Server) *view {
	next := &view{
		named:       map[string]*server{},
		prefix:      map[*server]string{},
		conflicting: map[*server]bool{},
		prefixes:    map[string]*server{},
	}
	for _, one := range servers {
		s := v.named[one.Name]
		if s == nil || s.Server != one {
			s = &server{Server: one, catalogs: map[string]*catalog{}}
		} else if v.prefix[s] != one.Prefix {
			s.forget()
		}
		next.prefix[s] = one.Prefix
		next.servers = append(next.servers, s)
		next.named[s.Name] = s
	}
	var begin []*server // a chain of servers: the prefix of each starts the prefix of the next, and the last prefix starts the prefix of s
	for _, s := range slices.SortedFunc(slices.Values(next.servers), func(s, b *server) int { return strings.Compare(next.prefix[s], next.prefix[b]) }) {
		for len(begin) > 0 && !strings.HasPrefix(next.prefix[s], next.prefix[begin[len(begin)-1]]) {
			begin = begin[:len(begin)-1]
		}
		if n := len(begin); n > 0 {
			next.conflicting[begin[n-1]], next.conflicting[s] = true, true
		}
		begin = append(begin, s)
	}
	for _, s := range next.servers {
		prefix := next.prefix[s]
		if _, taken := next.prefixes[prefix]; !taken && prefix != "" {
			next.prefixes[prefix] = s
			next.lengths = append(next.lengths, len(prefix))
		}
	}
	slices.Sort(next.lengths)
	next.lengths = slices.Compact(next.lengths)
	slices.Reverse(next.lengths)
	next.old = v.oldPrefixes(next, time.Now())
	return next
}

// Session returns the Upstream of a session. to gets the messages that servers send without a call.
func (a *Aggregate) Session(from *bridge.Caller, to bridge.Client) bridge.Upstream {
	return newSession(a, from, to)
}

// Owner returns the name of the server of a tool, which clients see as external; empty if the server is unknown. The
// prefix of the name decides, or the lists that the principal's sessions have read.
func (a *Aggregate) Owner(principal, external string) string {
	a.mu.Lock()
	v := a.now
	a.mu.Unlock()
	by := v.holder(external, func(s *server) bool { return s.Serves(principal) })
	if by == nil || v.conflicting[by] || hashed(external) {
		for _, s := range v.servers {
			if _, has := s.catalog(principal).internal(list.Tools, external); has && s.Serves(principal) {
				return s.Name
			}
		}
	}
	if by == nil {
		return ""
	}
	return by.Name
}

// Stateless returns the Upstream of all stateless clients.
func (a *Aggregate) Stateless() *Stateless {
	return &Stateless{a: a, each: map[string]*shared{}}
}
