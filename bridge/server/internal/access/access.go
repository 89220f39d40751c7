// Package access identifies callers and decides about their rights. It checks Host, Origin, keys and
// tokens, describes to clients how to authenticate, and applies rules, scopes and rights.
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
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/oauth/front/disk"
)

// Options are the parts of the bridge that Access needs.
type Options struct {
	Bridge Bridge
	Log    *slog.Logger
	// Store holds the data that the fronts of several instances share; nil for a single instance.
	Store front.Store
}

// Bridge has the configuration and the servers to which Access admits callers.
type Bridge interface {
	// Config returns the current configuration, which is read only.
	Config() *config.Config
	Servers() []string
	// HasAddress reports whether a server or a group has that name.
	HasAddress(name string) bool
	// Allowed returns nil if a principal may use the server, and otherwise the reason.
	Allowed(server, principal string) error
	// Resolve is as in gateway.Gateway.
	Resolve(server, principal string, mode gateway.ToolsMode, m *jsonrpc.Message) *jsonrpc.Message
	// KeysChanged is called when a principal loses its last key, and with good when it has a key again.
	KeysChanged(principal string, good bool)
	// Accepted is called with the context of each request whose key or token is good.
	Accepted(context.Context)
}

// Access checks who may use the bridge. Its methods may be called concurrently.
type Access struct {
	o             Options
	guard         atomic.Pointer[guard]
	keys          *auth.Authenticator // nil without access rules
	front         *front.Front        // gives tokens to users of an issuer; nil if not configured
	disk          *disk.Disk          // stores the logins of front; nil if it has no folder
	grants        *filter.Grants      // the grants of each caller; nil without access rules
	rejections    sync.Map            // by auth.ResultOf, a *logs.Limiter for lines about rejected requests; "" is for wrong keys
	failedKeys    *limit              // counts wrong keys
	unknownTokens *limit              // counts well-formed tokens that are unknown to their issuer
	lookups       *lookups            // bounds the lookups at issuers: each may end with a wrong key or an unknown token
	streams       streams
	use           atomic.Pointer[tokenUse]
	pending       atomic.Pointer[config.Config] // the configuration that is about to be applied; nil if there is none
	upgrades      scopeUpgrades
	stop          func() // implements Stop
}

// New returns an Access for the configuration. The fault names the part of the configuration that cannot be used:
// that part accepts no caller. The caller of New calls Start, and later Stop.
func New(o Options) (a *Access, fault error) {
	c := o.Bridge.Config()
	a = &Access{
		o:             o,
		grants:        filter.NewGrants(c.Grants()),
		failedKeys:    newLimit(o.Log),
		unknownTokens: newLimit(slog.New(slog.DiscardHandler)),
	}
	a.guard.Store(newGuard(c, o.Log))
	a.lookups = newLookups(a.failedKeys, a.unknownTokens)
	var err error
	if a.front, err = a.newFront(); err != nil {
		fault = err
		o.Log.Error("the front of an issuer cannot start", "err", err)
	}
	if a.keys, err = newDoor(c, a.front, o.Log); err != nil {
		fault = err
		o.Log.Error("tokens of an issuer cannot be checked", "err", err)
	}
	return a, fault
}

func (a *Access) c() *config.Config { return a.o.Bridge.Config() }

// Open opens the folder in which the front stores logins, if it has one.
func (a *Access) Open() error {
	if a.disk == nil {
		return nil
	}
	return a.disk.Open()
}

// Close closes the folder of the front. No request may come after Close.
func (a *Access) Close() {
	if a.disk != nil {
		_ = a.disk.Close() // every Put is on the disk already
	}
}

// Keyed reports whether access rules exist. Without them, all clients are one caller.
func (a *Access) Keyed() bool { return a.keys != nil }

// Door returns the verifier of keys and tokens; nil without access rules.
func (a *Access) Door() *auth.Authenticator { return a.keys }

// Front returns the front of an issuer; nil if none is configured.
func (a *Access) Front() *front.Front { return a.front }

// Grants returns the grants of each caller; nil without access rules.
func (a *Access) Grants() *filter.Grants { return a.grants }

// Covers reports whether a principal may use the server of that name.
func (a *Access) Covers(principal, server string) bool {
	g, ruled := a.grants.Of(principal)
	return !ruled || g.Covers(server)
}

// Rights reports whether a principal is an operator that may look at the data of all callers, and whether it may act.
func (a *Access) Rights(principal string) (look, act bool) {
	c, rule := a.c(), auth.RuleOf(principal)
	act = slices.Contains(c.Admin, rule)
	return act || slices.Contains(c.Viewers, rule), act
}

// Prepare enforces the scopes of the next configuration beside the current ones, until done is
// called: nothing new is served before its scopes are enforced.
func (a *Access) Prepare(next *config.Config) (done func()) {
	a.tokenUse() // records the names that next may change
	a.pending.Store(next)
	return func() { a.pending.Store(nil) }
}

// RevokeKeys applies the keys of the next configuration, except those of new rules, so that removed keys end before
// the new rules apply. Exactly one of ApplyRules and RestoreKeys follows.
func (a *Access) RevokeKeys(was, next *config.Config) {
	if a.keys != nil {
		a.keys.Set(slices.DeleteFunc(keysOf(next), func(k auth.Key) bool {
			return !slices.ContainsFunc(was.Access, func(rule config.Access) bool { return rule.Name == k.Principal })
		}))
	}
}

// RestoreKeys undoes RevokeKeys, because the next configuration is not applied.
func (a *Access) RestoreKeys(was *config.Config) {
	if a.keys != nil {
		a.keys.Set(keysOf(was))
	}
}

// ApplyRules applies the rules and keys of a configuration that is current now.
func (a *Access) ApplyRules(next *config.Config) {
	if a.keys != nil {
		a.grants.Set(next.Grants())
		a.keys.Set(keysOf(next))
	}
	a.guard.Store(newGuard(next, a.o.Log))
}

// Key returns the principal and the hash of a key. Any other text counts as a wrong key. If the sender has shown too
// many wrong keys, wait is the time after which the sender may show another wrong key.
func (a *Access) Key(r *http.Request, text string) (principal string, sum auth.Sum, wait time.Duration, ok bool) {
	if principal, sum, ok = a.keys.Key(text); ok {
		a.o.Bridge.Accepted(r.Context())
		return principal, sum, 0, true
	}
	if wait = a.failedKeys.Take(a.Client(r)); wait == 0 {
		a.logRejected(r, r.URL.Path, auth.ErrInvalid)
	}
	return "", sum, wait, false
}

// Recheck checks the credentials of an accepted request once more, and returns its caller. The check does not count
// as a request.
func (a *Access) Recheck(r *http.Request, to Target) (auth.Caller, error) {
	return a.keys.Again(r.Context(), r.Header, a.resource(r, to))
}

// If a request opens a stream of a server, Follow returns the request with a context that ends with the caller's
// token. The caller calls done when the request has been answered.
func (a *Access) Follow(r *http.Request, server string, to Target) (followed *http.Request, done func()) {
	return a.streams.follow(r, server, to.Endpoint[strings.LastIndexByte(to.Endpoint, '/')+1:])
}
