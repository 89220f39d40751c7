package token

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

// Introspection says how to ask an issuer about tokens that only it can read (RFC 7662).
type Introspection struct {
	// URL is where to ask. Default: where the metadata of the issuer says.
	URL string `yaml:"url"`
	// Client is the bridge itself, as the issuer knows it.
	Client Client `yaml:"client"`
	// Cache is how long a good token counts without being asked about again: at most 5m.
	// Default 30s.
	Cache time.Duration `yaml:"cache"`
	// Always asks about JSON Web Tokens too. Their keys are not needed then. Default false.
	Always bool `yaml:"always"`
}

// Client is what the bridge is known by at an issuer.
type Client struct {
	// ID and Secret are what the issuer has registered.
	ID     string `yaml:"id"`
	Secret string `yaml:"secret"`
	// KeyFile names a file with the PEM private key that signs in place of a secret. KeyID is
	// the name that the issuer has for it, and Algorithm what it signs by. Default: the usual
	// one for the key.
	KeyFile   string `yaml:"key_file"`
	KeyID     string `yaml:"key_id"`
	Algorithm string `yaml:"algorithm"`
	// InBody sends both in the body, in place of the header Authorization. Default false.
	InBody bool `yaml:"in_body"`
}

// Look looks at the file of the key, as assertion.Look does.
func (c *Client) Look(absolute func(string) string) (setting, remark string, fault error) {
	remark, fault = assertion.Look(&c.KeyFile, absolute)
	return "key_file", remark, fault
}

// Wrong returns the rule that the settings break, and the key that it is about, such as
// ": url"; nothing for good ones.
func (in *Introspection) Wrong() (key, rule string) {
	switch {
	case in.Client.ID == "":
		return ": client: id", `is missing: the bridge needs an id and a secret of its own at the issuer: client: { id: bridge, secret: "${IDP_SECRET}" }`
	case in.Client.Secret == "" && in.Client.KeyFile == "":
		return ": client: secret", `is missing: the bridge needs an id and a secret of its own at the issuer: client: { id: bridge, secret: "${IDP_SECRET}" }, or a key_file in place of the secret`
	case in.Client.KeyFile != "" && (in.Client.Secret != "" || in.Client.InBody):
		return ": client: key_file", "is in the place of secret and in_body: remove these"
	case in.Client.KeyFile == "" && in.Client.KeyID+in.Client.Algorithm != "":
		return ": client", "has key_id or algorithm, which are of use with key_file only"
	case in.Client.Algorithm != "" && !slices.Contains(assertion.Algorithms, in.Client.Algorithm):
		return ": client: algorithm", "must be one of " + strings.Join(assertion.Algorithms, ", ")
	case in.URL != "" && jwks.Safe(in.URL) != nil:
		return ": url", "must be https, as tokens and the secret of the client go there; http is for this machine only"
	case in.Cache < 0 || in.Cache > MaxCache:
		return ": cache", "must be at most 5m: for so long a token goes on that was revoked"
	}
	return "", ""
}

const (
	// DefaultCache is how long an answer counts if nothing is said, and MaxCache how
	// long at most: for so long a token goes on that was revoked.
	DefaultCache = 30 * time.Second
	MaxCache     = 5 * time.Minute

	refusedKept = 5 * time.Second // an answer that a token is not good
	maxRefused  = 10_000          // such answers
	askLimit    = 5 * time.Second // how long a request waits for an answer
)

type gateKey struct{}

// Gate says whether an issuer may be asked about a token that was never good.
type Gate interface {
	// Pass reports whether it may be asked now. Otherwise Pass is called again when busy
	// is closed; a nil busy says that it is not asked at all. Pass must not block. When it
	// was ok, it is not called again in the same Verify.
	Pass() (busy <-chan struct{}, ok bool)
}

// WithGate returns a context for Verify with a Gate.
func WithGate(ctx context.Context, gate Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, gate)
}

// asker asks an issuer about tokens: once for all who wait for the answer (I-025). Nobody
// else waits for it.
type asker struct {
	v    *Verifier // that knows good tokens
	i    *issuer
	at   *Endpoint
	kept time.Duration

	mu      sync.Mutex // guards the rest
	flights map[[32]byte]*flight
	refused *simplelru.LRU[[32]byte, refused]
}

// flight is a question that is under way.
type flight struct {
	done chan struct{} // closed when the rest is there
	t    *Token
	err  error
}

// refused is an answer that a token is not good.
type refused struct {
	why   *Error
	until time.Time
}

func newAsker(v *Verifier, i *issuer, at *Endpoint, kept time.Duration) *asker {
	if kept == 0 {
		kept = DefaultCache
	}
	few, _ := simplelru.NewLRU[[32]byte, refused](maxRefused, nil) // the size is positive
	return &asker{v: v, i: i, at: at, kept: kept, flights: map[[32]byte]*flight{}, refused: few}
}

// opaque reports whether a text may be a token: it is asked about in the name of whoever
// shows it.
func opaque(raw string) bool {
	return raw != "" && len(raw) <= maxToken && !strings.ContainsFunc(raw, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-._~+/=", r)
	})
}

// formed reports whether a text begins as a JSON Web Token does, encrypted or not.
func formed(raw string) bool {
	head, _, more := strings.Cut(raw, ".")
	data, err := base64.RawURLEncoding.DecodeString(head)
	return more && err == nil && gjson.ValidBytes(data) && data[0] == '{'
}

// verify returns what the issuer says of a token, for whatever resource it is. had is what
// it said before, or nil: who goes by that hears when the token is not good any more.
func (a *asker) verify(ctx context.Context, raw string, sum [32]byte, had *Token) (*Token, error) {
	if had != nil && !had.Until.After(time.Now()) {
		return nil, expired(a.i.o.URL)
	}
	gate, _ := ctx.Value(gateKey{}).(Gate)
	for until := time.Now().Add(askLimit); ; {
		a.mu.Lock()
		no, known := a.refused.Get(sum)
		if known && time.Now().Before(no.until) {
			a.mu.Unlock()
			return nil, no.why
		}
		unknown := had == nil && (!known || no.why.Asked)        // it was never good
		if t := a.v.get(sum); t != nil && t.counts(time.Now()) { // it has just been asked about
			a.mu.Unlock()
			return t, nil
		}
		f := a.flights[sum]
		if f == nil && unknown && gate != nil {
			if busy, ok := gate.Pass(); !ok {
				a.mu.Unlock()
				if busy == nil {
					return nil, &Error{Result: Invalid, Issuer: a.i.o.URL, Why: "too many tokens were made up by whoever shows this one: its issuer was not asked", Asked: true, Unasked: true, Text: !formed(raw)}
				}
				if err := a.await(ctx, busy, until); err != nil {
					return nil, err
				}
				continue
			}
		}
		if f == nil {
			f = &flight{done: make(chan struct{})}
			a.flights[sum] = f
			a.mu.Unlock()
			a.fly(ctx, f, raw, sum, had, unknown)
			return f.t, f.err
		}
		a.mu.Unlock()
		if err := a.await(ctx, f.done, until); err != nil {
			return nil, err
		}
		return f.t, f.err
	}
}

// await waits until done is closed, but not for ever.
func (a *asker) await(ctx context.Context, done <-chan struct{}, until time.Time) error {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return a.unavailable()
	}
}

func (a *asker) unavailable() *Error {
	return refuse(Unavailable, a.i.o.URL, "%v", ErrUnavailable)
}

// fly asks, for all who wait: that the first of them goes away ends nothing.
func (a *asker) fly(ctx context.Context, f *flight, raw string, sum [32]byte, had *Token, unknown bool) {
	f.err = a.unavailable() // if nothing else is found
	defer func() {
		a.mu.Lock()
		delete(a.flights, sum)
		var no *Error
		if errors.As(f.err, &no) && no.Result != Unavailable {
			a.refused.Add(sum, refused{no, time.Now().Add(refusedKept)})
		}
		a.mu.Unlock()
		close(f.done)
	}()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	answer, err := a.at.Ask(limited, raw, !unknown)
	if err != nil {
		return
	}
	ended := new(atomic.Bool)
	if had != nil && had.ended != nil && !had.ended.Load() {
		ended = had.ended
	}
	if f.t, f.err = a.read(answer, ended, raw, unknown); f.err == nil {
		a.v.keep(sum, f.t)
	}
}

// read returns what an answer says (I-024). One that has no iss is of the issuer that was
// asked. One without aud is for the client that got the token, which has to be one that
// audience lists. What was never good may be a guess at a key, unless it has the form of a
// JSON Web Token.
func (a *asker) read(answer []byte, ended *atomic.Bool, raw string, unknown bool) (*Token, error) {
	url := a.i.o.URL
	claims, err := object(answer)
	if err != nil {
		return nil, refuse(Unavailable, url, "what the issuer says of the token: %v", err)
	}
	if member(claims, "active").Type != gjson.True {
		return nil, &Error{Result: Invalid, Issuer: url, Why: "the issuer says that the token is not active: it has ended, was revoked, or is no token of it", Asked: unknown, Text: unknown && !formed(raw)}
	}
	if iss := member(claims, "iss"); iss.Exists() && iss.Str != url {
		return nil, refuse(Unknown, url, "the issuer says that the token is of another one, %.200q", iss.Str)
	}
	t, err := a.i.read(claims, true)
	if err != nil {
		return nil, err
	}
	if t.Scopes, err = a.i.scopes(claims); err != nil {
		return nil, refuse(Invalid, url, "the token: %v", err)
	}
	t.ended, t.fresh = ended, time.Now().Add(a.kept)
	return t, nil
}
