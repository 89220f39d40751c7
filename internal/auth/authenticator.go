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

// Caller is the authenticated caller of a request.
type Caller struct {
	// Principal identifies the caller in all that is stored per caller. For a caller with a key it is the name of the
	// access rule. For a user it is the rule's name, a slash, the issuer and the subject, so each user has another one
	// (see RuleOf).
	Principal string
	// Token is the verified token; nil for a key.
	Token *token.Token
	// Identity holds what servers may get of the token; nil if they get nothing.
	Identity *identity.Identity
}

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	if c.Token == nil && c.Identity == nil {
		return WithPrincipal(ctx, c.Principal)
	}
	return context.WithValue(ctx, contextKey{}, &c)
}

// TokenOf returns the token of a request's caller; nil without one.
func TokenOf(ctx context.Context) *token.Token {
	if c, ok := ctx.Value(contextKey{}).(*Caller); ok {
		return c.Token
	}
	return nil
}

// WithIdentity returns ctx, which has a caller, with another identity of that caller.
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

// RuleOf returns the name of the access rule that admitted a principal.
func RuleOf(principal string) string {
	rule, _, _ := strings.Cut(principal, "/")
	return rule
}

// Rule selects users that may use the bridge. A user must match all fields that are set (I-050).
type Rule struct {
	Name   string
	Issuer string              // one of the issuers; empty means any
	Claims map[string][]string // patterns by the name of a claim; a value of each claim must match one
	Scopes []string            // scopes that the token must have
	Users  []string            // patterns for the subject; a program matches only "*"; empty means any subject
}

// Authenticator authenticates callers by key or token. Its methods may be called concurrently.
type Authenticator struct {
	*Keys
	tokens    *token.Verifier // nil if only keys are accepted
	rules     []Rule
	log       *slog.Logger
	cutClaims sync.Map       // issuers for which a claim that is too long was logged
	ok        *atomic.Uint64 // counts[token.OK]
	counts    map[token.Result]*atomic.Uint64
}

// ErrDenied means that no access rule admits the user. Another token of the user would not help.
var ErrDenied = errors.New("no access rule admits this user")

// NewAuthenticator returns an Authenticator for the callers with keys, and for the users with tokens of the issuers
// that the rules admit. Without issuers it accepts only keys.
func NewAuthenticator(keys *Keys, issuers []token.Issuer, rules []Rule, log *slog.Logger) *Authenticator {
	a := &Authenticator{
		Keys:   keys,
		rules:  rules,
		log:    log,
		counts: map[token.Result]*atomic.Uint64{},
	}
	for _, r := range Results {
		a.counts[r] = new(atomic.Uint64)
	}
	a.ok = a.counts[token.OK]
	if len(issuers) > 0 {
		a.tokens = token.New(issuers, log)
	}
	return a
}

// Results are the results that Count knows.
var Results = []token.Result{token.OK, token.Missing, token.Expired, token.Audience, token.Unknown, token.Signature, token.Invalid, token.Scope, token.Denied, token.Unavailable}

// Tokens reports whether tokens are accepted.
func (a *Authenticator) Tokens() bool { return a != nil && a.tokens != nil }

// Run fetches and refreshes the keys of the issuers until ctx ends. It must be called only once.
func (a *Authenticator) Run(ctx context.Context) {
	if a.tokens != nil {
		a.tokens.Run(ctx)
	}
}

// Identify checks an ID token (see token.Verifier).
func (a *Authenticator) Identify(ctx context.Context, issuer, raw, client, nonce string) (gjson.Result, error) {
	return a.tokens.Identify(ctx, issuer, raw, client, nonce)
}

// Issuers returns the states of the issuers, sorted by name.
func (a *Authenticator) Issuers() []token.State {
	if a.tokens == nil {
		return nil
	}
	all := a.tokens.States()
	slices.SortFunc(all, func(state, s token.State) int { return strings.Compare(state.Issuer, s.Issuer) })
	return all
}

// NoteScope counts a request whose token lacked a scope. Caller has counted the request as OK before.
func (a *Authenticator) NoteScope() { a.counts[token.Scope].Add(1) }

// Count returns the number of requests with that result.
func (a *Authenticator) Count(r token.Result) uint64 { return a.counts[r].Load() }

// Caller returns the caller of a request for the resource to, and counts the result. The error is ErrMissing,
// ErrInvalid, ErrDenied, a *token.Error, or the error of ctx.
func (a *Authenticator) Caller(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	c, err := a.caller(ctx, h, to)
	if err == nil {
		a.ok.Add(1)
		return c, nil
	}
	if n := a.counts[ResultOf(err)]; n != nil { // nil if the client has disconnected
		n.Add(1)
	}
	return Caller{}, err
}

// Again is Caller for a request that was admitted before, without counting it.
func (a *Authenticator) Again(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	return a.caller(ctx, h, to)
}

// ResultOf returns the result that Caller counts for an error; empty if it counts none.
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

func (a *Authenticator) caller(ctx context.Context, h http.Header, to token.Resource) (Caller, error) {
	a.refresh()
	text, err := keyOf(h)
	if err != nil {
		return Caller{}, err
	}
	sum := a.sum(text)
	if name, found := a.find(sum); found {
		return Caller{Principal: name}, nil
	}
	if a.tokens == nil || len(h[apiKey]) > 0 { // X-API-Key never has a token
		return Caller{}, ErrInvalid
	}
	t, err := a.tokens.Verify(ctx, text, sum, to)
	if err != nil {
		return Caller{}, err
	}
	if name, known := t.Note.Load().(string); known {
		if name == "" {
			return Caller{}, ErrDenied
		}
		return Caller{name, t, nil}, nil
	}
	for i := range a.rules {
		if a.matches(&a.rules[i], t) {
			name := principal(a.rules[i].Name, t)
			t.Note.Store(name)
			return Caller{name, t, nil}, nil
		}
	}
	t.Note.Store("") // the fault is logged once for each token
	a.log.Info("a user was refused: no access rule matches", "issuer", t.Issuer, "sub", t.Subject)
	return Caller{}, ErrDenied
}

// principal returns the principal of a user. No issuer has a query or a fragment, so the first ? or # ends the issuer
// (I-028).
func principal(rule string, t *token.Token) string {
	if t.Machine {
		return rule + "/" + t.Issuer + "?" + t.Subject
	}
	return rule + "/" + t.Issuer + "#" + t.Subject
}

// everybody is the pattern in Rule.Users that matches programs, too.
const everybody = "*"

// matches reports whether a rule admits the user of a token. A rule without conditions admits no user. The subject of a
// program is its client id, which could be chosen to look like that of a user.
func (a *Authenticator) matches(r *Rule, t *token.Token) bool {
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
			if _, said := a.cutClaims.LoadOrStore(t.Issuer, true); !said {
				a.log.Warn("an issuer leaves a claim out of tokens because it is too long, so that no rule matches it: make the issuer send fewer groups", "issuer", t.Issuer, "claim", name)
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
