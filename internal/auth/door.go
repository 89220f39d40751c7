package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/glob"
)

// Caller is who makes a request.
type Caller struct {
	// Principal is what everything that is kept for the caller goes by. Of a key it is
	// the name of its rule. Of a user it begins with that name and a slash, behind which
	// are the issuer and the subject, which no other user has (see RuleOf).
	Principal string
	// Token is what its token says; nil for a key.
	Token *token.Token
	// Identity is what servers may get of the token; nil if they get nothing.
	Identity *identity.Identity
}

// WithCaller returns a context of a request whose caller is known.
func WithCaller(ctx context.Context, c Caller) context.Context {
	if c.Token == nil && c.Identity == nil {
		return WithPrincipal(ctx, c.Principal)
	}
	return context.WithValue(ctx, contextKey{}, &c)
}

// TokenOf returns what the token of the caller of a request says; nil when it has shown
// none.
func TokenOf(ctx context.Context) *token.Token {
	if c, ok := ctx.Value(contextKey{}).(*Caller); ok {
		return c.Token
	}
	return nil
}

// WithIdentity returns a context of a request whose caller WithCaller has set, with its identity.
func WithIdentity(ctx context.Context, id *identity.Identity) context.Context {
	return WithCaller(ctx, Caller{Principal(ctx), TokenOf(ctx), id})
}

// IdentityOf returns what servers may get of the caller's token; nil if they get nothing.
func IdentityOf(ctx context.Context) *identity.Identity {
	if c, ok := ctx.Value(contextKey{}).(*Caller); ok {
		return c.Identity
	}
	return nil
}

// RuleOf returns the name of the access rule that a principal was let in by.
func RuleOf(principal string) string {
	rule, _, _ := strings.Cut(principal, "/")
	return rule
}

// Rule says which users may call: all that is set has to fit (I-050).
type Rule struct {
	Name   string
	Issuer string              // one of the issuers; empty means any
	Claims map[string][]string // patterns, of which one has to fit, by claims
	Scopes []string            // those that the token must have
	Users  []string            // patterns, of which one has to fit the subject; of a program only "*" does; empty means any
}

// Door lets callers in who show a key or a token. Its methods may be called
// concurrently.
type Door struct {
	*Keys
	tokens *token.Verifier // nil when only keys count
	rules  []Rule
	log    *slog.Logger
	cut    sync.Map       // the issuers of which it was said that they cut groups off
	ok     *atomic.Uint64 // of counts
	counts map[token.Result]*atomic.Uint64
}

// ErrDenied: no rule lets the user in. Another token would not help.
var ErrDenied = errors.New("no access rule is for this user")

// NewDoor makes a door for those keys, and for the users whom the rules let in by tokens
// of the issuers; without issuers, for keys alone.
func NewDoor(keys *Keys, issuers []token.Issuer, rules []Rule, log *slog.Logger) *Door {
	d := &Door{Keys: keys, rules: rules, log: log, counts: map[token.Result]*atomic.Uint64{}}
	for _, r := range Results {
		d.counts[r] = new(atomic.Uint64)
	}
	d.ok = d.counts[token.OK]
	if len(issuers) > 0 {
		d.tokens = token.New(issuers, log)
	}
	return d
}

// Results are all that Counts has.
var Results = []token.Result{token.OK, token.Missing, token.Expired, token.Audience, token.Unknown, token.Signature, token.Invalid, token.Scope, token.Denied, token.Unavailable}

// Tokens reports whether tokens count.
func (d *Door) Tokens() bool { return d != nil && d.tokens != nil }

// Run fetches the keys of the issuers and keeps them new, until ctx ends. It is called
// once.
func (d *Door) Run(ctx context.Context) {
	if d.tokens != nil {
		d.tokens.Run(ctx)
	}
}

// Identify checks an ID token: see token.Verifier.
func (d *Door) Identify(ctx context.Context, issuer, raw, client, nonce string) (gjson.Result, error) {
	return d.tokens.Identify(ctx, issuer, raw, client, nonce)
}

// Issuers returns the state of the issuers, by their names.
func (d *Door) Issuers() []token.State {
	if d.tokens == nil {
		return nil
	}
	all := d.tokens.States()
	slices.SortFunc(all, func(a, b token.State) int { return strings.Compare(a.Issuer, b.Issuer) })
	return all
}

// NoteScope counts a request whose token lacked a scope. It counts as let in, too.
func (d *Door) NoteScope() { d.counts[token.Scope].Add(1) }

// Count returns how many requests have come to that result.
func (d *Door) Count(r token.Result) uint64 { return d.counts[r].Load() }

// Caller returns who makes a request with these headers for a resource. The error is
// ErrMissing, ErrInvalid, ErrDenied, a *token.Error, or that of ctx.
func (d *Door) Caller(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	c, err := d.caller(ctx, h, to)
	if err == nil {
		d.ok.Add(1)
		return c, nil
	}
	if n := d.counts[ResultOf(err)]; n != nil { // otherwise the client has gone
		n.Add(1)
	}
	return Caller{}, err
}

// Again returns what Caller does now, for a request that it has let in before: it counts once.
func (d *Door) Again(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	return d.caller(ctx, h, to)
}

// ResultOf returns what an error of Caller is counted as; empty for none.
func ResultOf(err error) token.Result {
	var fault *token.Error
	switch {
	case errors.As(err, &fault):
		return fault.Result
	case errors.Is(err, ErrMissing):
		return token.Missing
	case errors.Is(err, ErrDenied):
		return token.Denied
	case errors.Is(err, ErrInvalid):
		return token.Invalid
	}
	return ""
}

func (d *Door) caller(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	d.refresh()
	text, err := shown(h)
	if err != nil {
		return Caller{}, err
	}
	sum := d.sum(text)
	if name, found := d.find(sum); found {
		return Caller{Principal: name}, nil
	}
	if d.tokens == nil || len(h[apiKey]) > 0 { // which is only ever a key
		return Caller{}, ErrInvalid
	}
	t, err := d.tokens.Verify(ctx, text, sum, to)
	if err != nil {
		return Caller{}, err
	}
	if name, known := t.Note.Load().(string); known {
		if name == "" {
			return Caller{}, ErrDenied
		}
		return Caller{name, t, nil}, nil
	}
	for i := range d.rules {
		if d.fits(&d.rules[i], t) {
			name := principal(d.rules[i].Name, t)
			t.Note.Store(name)
			return Caller{name, t, nil}, nil
		}
	}
	t.Note.Store("") // so that this is said once of a token
	d.log.Info("a user was turned away: no rule of access fits", "issuer", t.Issuer, "sub", t.Subject)
	return Caller{}, ErrDenied
}

// principal returns the name of a user. No issuer has a query or a fragment, so that the
// first of these signs tells where it ends (I-028).
func principal(rule string, t *token.Token) string {
	if t.Machine {
		return rule + "/" + t.Issuer + "?" + t.Subject
	}
	return rule + "/" + t.Issuer + "#" + t.Subject
}

// everybody is the pattern of Rule.Users that fits programs too.
const everybody = "*"

// fits reports whether a rule is for the user of a token. One that names nobody is for
// nobody. Of a program the subject is its client id, which no pattern is meant for: it may
// be chosen so that it looks like that of a user.
func (d *Door) fits(r *Rule, t *token.Token) bool {
	switch {
	case len(r.Claims)+len(r.Scopes)+len(r.Users) == 0, r.Issuer != "" && r.Issuer != t.Issuer,
		len(r.Users) > 0 && t.Machine && !slices.Contains(r.Users, everybody),
		len(r.Users) > 0 && !match(r.Users, []string{t.Subject}):
		return false
	}
	for _, s := range r.Scopes {
		if _, has := slices.BinarySearch(t.Scopes, s); !has {
			return false
		}
	}
	for name, patterns := range r.Claims {
		v := token.At(t.Claims, name)
		if !v.Exists() && token.At(t.Claims, "_claim_names."+name).Exists() {
			if _, said := d.cut.LoadOrStore(t.Issuer, true); !said {
				d.log.Warn("an issuer leaves a claim out of tokens, because it is too long: no rule fits by it (have the issuer send fewer groups)", "issuer", t.Issuer, "claim", name)
			}
		}
		if !match(patterns, token.Texts(v)) {
			return false
		}
	}
	return true
}

func match(patterns, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return glob.Match(p, text) })
	})
}
