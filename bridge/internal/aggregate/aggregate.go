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
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Server is one of the servers: what is needed of it. Its functions may be called
// concurrently.
type Server struct {
	Name   string // without spaces or colons
	Prefix string // of the names that clients see; may be empty
	Log    *slog.Logger
	// Remembers reports whether a list may be kept, and given to whoever asks on behalf of
	// the same principal.
	Remembers func() bool
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
	Info   []byte          // serverInfo of all as one, raw JSON
	Params []byte          // of initialize, on behalf of clients without sessions
	Force  context.Context // ends when what is being closed has no more time
	// Following returns life, as a part of the trace that call belongs to.
	Following func(life, call context.Context) context.Context
}

// Aggregate is all servers as one.
type Aggregate struct {
	o Options

	mu   sync.Mutex // guards the rest
	now  *view
	open map[*combined]struct{} // that are open
}

// view is the servers of a moment. It is not changed: another takes its place.
type view struct {
	servers  []*server
	named    map[string]*server
	rivals   map[*server]bool   // whose prefixes are such that names can be the same
	prefixes map[string]*server // by the prefix that only they have
	lengths  []int              // of those, the longest first
	former   []former           // the newest last
}

// server is one of the servers, and what it has listed.
type server struct {
	*Server
	cut [list.Kinds]atomic.Bool // the log has a warning that this list was cut off

	mu       sync.Mutex          // guards catalogs
	catalogs map[string]*catalog // by principal
}

// New makes one of no servers yet: see Set.
func New(o Options) *Aggregate {
	return &Aggregate{o: o, now: &view{}, open: map[*combined]struct{}{}}
}

// Set has clients see those servers from now on, of which the first counts of two
// that have the same. Those that were there before are known by their pointers, and
// notice nothing. Clients are told what may have changed. Calls to servers that are
// gone go on until leave is called, which ends the connections to one of these.
//
// Calls of Set do not overlap.
func (a *Aggregate) Set(servers []*Server) (leave func(ctx context.Context, gone *Server)) {
	a.mu.Lock()
	a.now = a.now.with(servers)
	v := a.now
	open := slices.Collect(maps.Keys(a.open))
	a.mu.Unlock()
	var left []*member
	for _, g := range open {
		left = append(left, g.take(v)...)
	}
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

// former is a prefix that a server had until a moment ago: who still uses it finds what
// nobody else has.
type former struct {
	prefix, server string
	until          time.Time
}

const (
	formerKept = 5 * time.Minute
	maxFormer  = 8 // of all servers
)

// formerly returns the prefixes that servers had before next, for as long as they count.
func (v *view) formerly(next *view, now time.Time) (all []former) {
	stays := func(f former) bool {
		s := next.named[f.server]
		return s != nil && s.Prefix != f.prefix && now.Before(f.until)
	}
	was := v.former
	for _, s := range v.servers {
		f := former{s.Prefix, s.Name, now.Add(formerKept)}
		if stays(f) {
			was = append(slices.DeleteFunc(slices.Clone(was), func(o former) bool { return o.server == s.Name && o.prefix == s.Prefix }), f)
		}
	}
	for _, f := range was {
		if stays(f) {
			all = append(all, f)
		}
	}
	return all[max(0, len(all)-maxFormer):]
}

// with returns the view of those servers. What is known of those in v stays known.
func (v *view) with(servers []*Server) *view {
	next := &view{named: map[string]*server{}, rivals: map[*server]bool{}, prefixes: map[string]*server{}}
	for _, one := range servers {
		s := v.named[one.Name]
		if s == nil || s.Server != one {
			s = &server{Server: one, catalogs: map[string]*catalog{}}
		}
		next.servers = append(next.servers, s)
		next.named[s.Name] = s
	}
	var begin []*server // each with a prefix that begins those behind it, and that of s
	for _, s := range slices.SortedFunc(slices.Values(next.servers), func(a, b *server) int { return strings.Compare(a.Prefix, b.Prefix) }) {
		for len(begin) > 0 && !strings.HasPrefix(s.Prefix, begin[len(begin)-1].Prefix) {
			begin = begin[:len(begin)-1]
		}
		if n := len(begin); n > 0 {
			next.rivals[begin[n-1]], next.rivals[s] = true, true
		}
		begin = append(begin, s)
	}
	for _, s := range next.servers {
		if _, taken := next.prefixes[s.Prefix]; !taken && s.Prefix != "" {
			next.prefixes[s.Prefix] = s
			next.lengths = append(next.lengths, len(s.Prefix))
		}
	}
	slices.Sort(next.lengths)
	next.lengths = slices.Compact(next.lengths)
	slices.Reverse(next.lengths)
	next.former = v.formerly(next, time.Now())
	return next
}

// Session returns what the calls of a session go to, which is told at to.
func (a *Aggregate) Session(from *bridge.Caller, to bridge.Client) bridge.Upstream {
	return newCombined(a, from, to)
}

// Stateless returns what the calls of all clients without sessions go to.
func (a *Aggregate) Stateless() *Stateless {
	return &Stateless{a: a, each: map[string]*shared{}}
}
