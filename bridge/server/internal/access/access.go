// Package access says who a caller is and what it may do: it checks Host, Origin, keys and
// tokens, tells clients how to get in, and knows the rules, scopes and rights of callers.
package access

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/oauth/front/disk"
)

// Options are what Access asks of the bridge. All functions have to be there.
type Options struct {
	Config func() *config.Config // what counts now; it is not changed
	Log    *slog.Logger
	// Servers names the servers, Has reports whether there is one of that name, and
	// Allowed tells why a principal may not use it.
	Servers func() []string
	Has     func(server string) bool
	Allowed func(server, principal string) error
	// Heed is told when a principal has no good key any more, and when it has one again.
	Heed func(principal string, good bool)
	// Known is told of the context of each request with a good key.
	Known func(context.Context)
	// Store is what the front of several instances shares; nil for the only one.
	Store front.Store
}

// Access is who may come in. Its methods may be called concurrently.
type Access struct {
	o          Options
	guard      atomic.Pointer[guard]
	keys       *auth.Door     // who lets callers in; nil when there are no access rules
	front      *front.Front   // gives tokens to users of an issuer; nil when there is none
	disk       *disk.Disk     // where it keeps logins; nil when it is not there
	grants     *filter.Grants // what each caller may use, likewise
	complaints sync.Map       // *logs.Limiter about requests without a good key or token, by auth.ResultOf; "" is for wrong keys
	wrong      *limit
	strange    *limit     // tokens that their issuer knows nothing of, and that look like some
	questions  *questions // about tokens: each may turn out to be one of either
	lives      lives
	wanted     atomic.Pointer[claimed]
	coming     atomic.Pointer[config.Config] // what is about to count; nil if nothing is
	elevations elevations
	stop       func() // what Stop does
}

// New makes what a configuration says of access. The fault is why not all of that can be
// used: then nobody gets in by it. Start has to be called, and Stop.
func New(o Options) (a *Access, fault error) {
	c := o.Config()
	a = &Access{o: o, grants: filter.NewGrants(c.Grants()), wrong: newLimit(o.Log), strange: newLimit(slog.New(slog.DiscardHandler))}
	a.guard.Store(newGuard(c, o.Log))
	a.questions = ask(a.wrong, a.strange)
	var err error
	if a.front, err = a.newFront(); err != nil {
		fault = err
		o.Log.Error("the bridge cannot stand in for an issuer", "err", err)
	}
	if a.keys, err = newDoor(c, a.front, o.Log); err != nil {
		fault = err
		o.Log.Error("tokens of an issuer cannot be checked", "err", err)
	}
	return a, fault
}

func (a *Access) c() *config.Config { return a.o.Config() }

// Open opens the folder in which the front keeps logins, if it has one.
func (a *Access) Open() error {
	if a.disk == nil {
		return nil
	}
	return a.disk.Open()
}

// Close closes that folder. Nobody comes in any more.
func (a *Access) Close() {
	if a.disk != nil {
		_ = a.disk.Close() // what was put is there already
	}
}

// Keyed reports whether there are access rules: otherwise everybody is one caller.
func (a *Access) Keyed() bool { return a.keys != nil }

// Door returns what lets callers in; nil without access rules.
func (a *Access) Door() *auth.Door { return a.keys }

// Front returns what stands in for an issuer; nil if nothing does.
func (a *Access) Front() *front.Front { return a.front }

// Grants returns what each caller may use; nil without access rules.
func (a *Access) Grants() *filter.Grants { return a.grants }

// Covers reports whether a principal may use the server of that name.
func (a *Access) Covers(principal, server string) bool {
	g, ruled := a.grants.Of(principal)
	return !ruled || g.Covers(server)
}

// Rights returns whether a principal may look at what is of others, and act on it.
func (a *Access) Rights(principal string) (look, act bool) {
	c, rule := a.c(), auth.RuleOf(principal)
	act = slices.Contains(c.Admin, rule)
	return act || slices.Contains(c.Viewers, rule), act
}

// Coming has the scopes of another configuration count beside those that count now, until
// done is called: nothing new is served before its scopes count.
func (a *Access) Coming(next *config.Config) (done func()) {
	a.claimed() // it remembers the names that next may change
	a.coming.Store(next)
	return func() { a.coming.Store(nil) }
}

// Leave takes away the keys that another configuration has not, before it counts: who leaves
// does so before there are other rules. Exactly one of Enter and Stay follows.
func (a *Access) Leave(was, next *config.Config) {
	if a.keys != nil {
		a.keys.Set(slices.DeleteFunc(keysOf(next), func(k auth.Key) bool {
			return !slices.ContainsFunc(was.Access, func(rule config.Access) bool { return rule.Name == k.Principal })
		}))
	}
}

// Stay gives back what Leave has taken: the other configuration does not come.
func (a *Access) Stay(was *config.Config) {
	if a.keys != nil {
		a.keys.Set(keysOf(was))
	}
}

// Enter has the rules and keys of a configuration count, which counts by now.
func (a *Access) Enter(next *config.Config) {
	if a.keys != nil {
		a.grants.Set(next.Grants())
		a.keys.Set(keysOf(next))
	}
	a.guard.Store(newGuard(next, a.o.Log))
}

// Key returns whose key a text is. If it is nobody's, it counts as a guess: wait is how long
// whoever sent it has to wait, or 0.
func (a *Access) Key(r *http.Request, text string) (principal string, sum auth.Sum, wait time.Duration, ok bool) {
	if principal, sum, ok = a.keys.Key(text); ok {
		a.o.Known(r.Context())
		return principal, sum, 0, true
	}
	if wait = a.wrong.Take(a.Client(r)); wait == 0 {
		a.complain(r, r.URL.Path, auth.ErrInvalid)
	}
	return "", sum, wait, false
}

// Again returns who makes a request that was let in, by what it shows for a place, now. It
// counts as no request.
func (a *Access) Again(r *http.Request, to Place) (auth.Caller, error) {
	return a.keys.Again(r.Context(), r.Header, a.resource(r, to))
}

// Follow returns the request of a caller with a token, which ends with that token if it opens
// a stream of a server. done is called when it has been answered.
func (a *Access) Follow(r *http.Request, server string, to Place) (followed *http.Request, done func()) {
	return a.lives.follow(r, server, to.Endpoint[strings.LastIndexByte(to.Endpoint, '/')+1:])
}
