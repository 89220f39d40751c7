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
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// Introspection holds the settings to ask an issuer about opaque tokens (RFC 7662).
type Introspection struct {
	// URL is the introspection endpoint. Default: the endpoint in the issuer's metadata.
	URL string `yaml:"url"`
	// Client holds the credentials of the bridge at the issuer.
	Client Client `yaml:"client"`
	// Cache is how long an answer that a token is valid is used: at most 5m. Default 30s.
	Cache time.Duration `yaml:"cache" default:"30s" max:"5m" why:"a revoked token works for that long"`
	// Always makes the bridge introspect JSON Web Tokens, too, in place of checking their signatures. Default false.
	Always bool `yaml:"always"`
}

// Client holds the credentials of the bridge at an issuer.
type Client struct {
	// ID and Secret are the client_id and the client_secret of the bridge.
	ID     string `yaml:"id"`
	Secret string `yaml:"secret"`
	// KeyFile is a file with a private key in PEM, which replaces Secret. KeyID is the kid of the key at the issuer.
	// Algorithm is the signature algorithm. Default: the usual one for the key.
	KeyFile   string `yaml:"key_file"`
	KeyID     string `yaml:"key_id"`
	Algorithm string `yaml:"algorithm"`
	// InBody sends ID and Secret in the body, not in the header Authorization. Default false.
	InBody bool `yaml:"in_body"`
}

// grant returns the client as package discovery uses it.
func (c *Client) grant() *discovery.Client {
	return discovery.NewClient(c.ID, c.Secret, c.InBody, assertion.Key{
		File:      c.KeyFile,
		ID:        c.KeyID,
		Algorithm: c.Algorithm,
	})
}

// Look makes the path of the key file absolute and checks the file, as assertion.Look does.
func (c *Client) Look(absolute func(string) string) (setting, remark string, fault error) {
	remark, fault = assertion.Look(&c.KeyFile, absolute)
	return "key_file", remark, fault
}

// Wrong returns the rule that the settings break, and the key that breaks it, such as ": url". It returns empty texts
// for valid settings.
func (i *Introspection) Wrong() (key, rule string) {
	switch {
	case i.Client.ID == "":
		return ": client: id", `is missing: the bridge needs an id and a secret of its own at the issuer: client: { id: bridge, secret: "${IDP_SECRET}" }`
	case i.Client.Secret == "" && i.Client.KeyFile == "":
		return ": client: secret", `is missing: the bridge needs an id and a secret of its own at the issuer: client: { id: bridge, secret: "${IDP_SECRET}" }, or a key_file in place of the secret`
	case i.Client.KeyFile != "" && (i.Client.Secret != "" || i.Client.InBody):
		return ": client: key_file", "replaces secret and in_body: remove these"
	case i.Client.KeyFile == "" && i.Client.KeyID+i.Client.Algorithm != "":
		return ": client", "has key_id or algorithm, which need key_file"
	case i.Client.Algorithm != "" && !slices.Contains(assertion.Algorithms, i.Client.Algorithm):
		return ": client: algorithm", "must be one of " + strings.Join(assertion.Algorithms, ", ")
	case i.URL != "" && jwks.CheckAddress(i.URL) != nil:
		return ": url", "must be https, since tokens and the secret of the client are sent there; http is for this machine only"
	}
	return "", ""
}

const (
	refusedLife = 5 * time.Second // how long the answer that a token is not valid is used
	maxRefused  = 10_000          // number of such answers that are stored
	askLimit    = 5 * time.Second // how long a request waits for the answer
)

type gateKey struct{}

// Gate limits the introspection of tokens that were not valid before.
type Gate interface {
	// Pass reports whether the issuer may be asked now. If not, and busy is not nil, Pass is called again when busy is
	// closed. If busy is nil, the issuer is not asked. After ok is true, Pass is not called again in the same Verify.
	// Pass must not block.
	Pass() (busy <-chan struct{}, ok bool)
}

// WithGate returns a context that gives Verify a Gate.
func WithGate(ctx context.Context, gate Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, gate)
}

// asker introspects tokens. Concurrent requests with the same token share one introspection (I-025).
type asker struct {
	v    *Verifier // its cache holds the valid tokens
	i    *issuer
	at   *Endpoint
	life time.Duration

	mu      sync.Mutex // guards the rest
	flights map[[32]byte]*flight
	refused simplelru.LRUCache[[32]byte, refused]
}

// flight is an introspection in flight.
type flight struct {
	done chan struct{} // closed when t and err are set
	t    *Token
	err  error
}

// refused is a stored answer that a token is not valid.
type refused struct {
	why   *Error
	until time.Time
}

func newAsker(v *Verifier, i *issuer, at *Endpoint, kept time.Duration) *asker {
	few, _ := simplelru.NewLRU[[32]byte, refused](maxRefused, nil) // the size is positive
	return &asker{
		v:       v,
		i:       i,
		at:      at,
		life:    kept,
		flights: map[[32]byte]*flight{},
		refused: few,
	}
}

// mayBeOpaque reports whether a text may be an opaque token. The issuer gets only such texts.
func mayBeOpaque(raw string) bool {
	return raw != "" && len(raw) <= maxToken && !strings.ContainsFunc(raw, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-._~+/=", r)
	})
}

// looksLikeJWT reports whether a text begins like a JSON Web Token, encrypted or not.
func looksLikeJWT(raw string) bool {
	head, _, more := strings.Cut(raw, ".")
	data, err := base64.RawURLEncoding.DecodeString(head)
	return more && err == nil && gjson.ValidBytes(data) && data[0] == '{'
}

// verify introspects a token, for any resource. cached is the token in the cache, or nil. If the answer says that the
// token is not valid any more, it also ends cached.
func (a *asker) verify(ctx context.Context, raw string, sum [32]byte, cached *Token) (*Token, error) {
	if cached != nil && !cached.Until.After(time.Now()) {
		return nil, expired(a.i.o.URL)
	}
	gate, _ := ctx.Value(gateKey{}).(Gate)
	for until := time.Now().Add(askLimit); ; {
		a.mu.Lock()
		cachedNo, known := a.refused.Get(sum)
		if known && time.Now().Before(cachedNo.until) {
			a.mu.Unlock()
			return nil, cachedNo.why
		}
		unknown := cached == nil && (!known || cachedNo.why.Asked) // the token was never valid
		if t := a.v.get(sum); t != nil && t.valid(time.Now()) {    // another request has just introspected the token
			a.mu.Unlock()
			return t, nil
		}
		f := a.flights[sum]
		if f == nil && unknown && gate != nil {
			if busy, ok := gate.Pass(); !ok {
				a.mu.Unlock()
				if busy == nil {
					return nil, &Error{
						Result:  Invalid,
						Issuer:  a.i.o.URL,
						Why:     "its issuer was not asked: this client has sent too many invalid tokens",
						Asked:   true,
						Unasked: true,
						Text:    !looksLikeJWT(raw),
					}
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
			a.introspect(ctx, f, raw, sum, cached, unknown)
			return f.t, f.err
		}
		a.mu.Unlock()
		if err := a.await(ctx, f.done, until); err != nil {
			return nil, err
		}
		return f.t, f.err
	}
}

// await waits for done, but not beyond until.
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

// introspect introspects a token for all requests that wait for f. The end of the first request does not cancel it.
func (a *asker) introspect(ctx context.Context, f *flight, raw string, sum [32]byte, cached *Token, unknown bool) {
	f.err = a.unavailable() // replaced if there is an answer
	defer func() {
		a.mu.Lock()
		delete(a.flights, sum)
		var no *Error
		if errors.As(f.err, &no) && no.Result != Unavailable {
			a.refused.Add(sum, refused{no, time.Now().Add(refusedLife)})
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
	if cached != nil && cached.ended != nil && !cached.ended.Load() {
		ended = cached.ended
	}
	if f.t, f.err = a.read(answer, ended, raw, unknown); f.err == nil {
		a.v.store(sum, f.t)
	}
}

// read checks an answer (I-024). Without iss, the issuer is the one that answered. Without aud, the token is for the
// client that got it, and Issuer.Audience must have that client. unknown says that the token was not valid before.
// Unless such a token has the form of a JSON Web Token, it may be a guess at a key.
func (a *asker) read(answer []byte, ended *atomic.Bool, raw string, unknown bool) (*Token, error) {
	url := a.i.o.URL
	claims, err := object(answer)
	if err != nil {
		return nil, refuse(Unavailable, url, "the introspection answer: %v", err)
	}
	if member(claims, "active").Type != gjson.True {
		return nil, &Error{
			Result: Invalid,
			Issuer: url,
			Why:    "the issuer says that the token is not active: it has expired, was revoked, or is not a token of this issuer",
			Asked:  unknown,
			Text:   unknown && !looksLikeJWT(raw),
		}
	}
	if iss := member(claims, "iss"); iss.Exists() && iss.Str != url {
		return nil, refuse(Unknown, url, "the introspection answer names another issuer, %.200q", iss.Str)
	}
	t, err := a.i.read(claims, true)
	if err != nil {
		return nil, err
	}
	if t.Scopes, err = a.i.scopes(claims); err != nil {
		return nil, refuse(Invalid, url, "the token: %v", err)
	}
	t.ended, t.fresh = ended, time.Now().Add(a.life)
	return t, nil
}
