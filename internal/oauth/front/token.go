package front

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/grant"
	"github.com/mcp-bridge/bridge/internal/pause"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// login is a user who has signed in, by a client for a resource.
type login struct {
	Client   string          `json:"c"` // what stands for its id
	ID       string          `json:"i"` // see idOf
	Resource string          `json:"a"`
	Scopes   []string        `json:"o,omitempty"`
	Subject  string          `json:"s"`
	User     json.RawMessage `json:"u"`           // what the provider says of the user
	Refresh  string          `json:"r,omitempty"` // of the provider; empty without one
	Nonce    string          `json:"x"`
	// Turn is the number of the refresh token that counts, and Turned when the one before it
	// was used. Until Busy, somebody is renewing it.
	Turn   uint64 `json:"n,omitempty"`
	Turned int64  `json:"t,omitempty"`
	Busy   int64  `json:"b,omitempty"`
}

// given is what a code is for.
type given struct {
	Request request `json:"q"`
	Login   login   `json:"l"`
	ID      string  `json:"i"` // of the login
	At      int64   `json:"t"`
	Used    string  `json:"u,omitempty"` // the login that has come of it; then there is nothing else
}

// turn is a refresh token.
type turn struct {
	ID string `json:"i"` // of the login
	N  uint64 `json:"n,omitempty"`
}

const (
	busyFor   = 40 * time.Second // longer than a request to the provider takes
	busyWait  = 20 * time.Second
	busyEvery = 50 * time.Millisecond
)

func loginKey(id string) string { return "login:" + id }

// fault is why there is no token.
type fault struct {
	status     int
	code, text string
}

func bad(code, text string) *fault { return &fault{http.StatusBadRequest, code, text} }

var (
	errClient = &fault{http.StatusUnauthorized, "invalid_client", "the client is not registered here: register again"}
	errCode   = bad("invalid_grant", "the code is not good, or not any more")
	errTurn   = bad("invalid_grant", "the refresh token is not good, or not any more: sign in again")
	errTarget = bad("invalid_target", "the resource is not the one that was asked for at first")
	errStore  = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the store of this server cannot be reached"}
	errIdP    = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the identity provider cannot be reached"}
)

// token gives tokens for codes, and for other tokens.
func (f *Front) token(w http.ResponseWriter, r *http.Request) {
	fresh, no := f.give(r)
	switch {
	case no == nil:
		answer(w, http.StatusOK, "no-store", fresh)
	case no.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
		fail(w, no.status, no.code, no.text)
	default:
		if after := f.failing.take(f.o.From(r)); after > 0 { // good ones go on: others may be behind the same address
			wait(w, after)
			return
		}
		fail(w, no.status, no.code, no.text)
	}
}

func (f *Front) give(r *http.Request) (map[string]any, *fault) {
	err := r.ParseForm()
	get, ok := single(r.PostForm)
	if err != nil || !ok {
		return nil, bad("invalid_request", "the body must be a form, with each parameter once")
	}
	id := get("client_id")
	if name, secret, basic := r.BasicAuth(); basic {
		name, err := url.QueryUnescape(name)
		if err != nil || secret != "" || id != "" && id != name {
			return nil, errClient
		}
		id = name
	}
	if !isDocument(id) && f.registered(id) == nil {
		return nil, errClient
	}
	ctx := context.WithoutCancel(r.Context()) // a token that the provider gives must not be lost
	switch get("grant_type") {
	case "authorization_code":
		return f.redeem(ctx, seal.Fingerprint(id), get)
	case "refresh_token":
		return f.renew(ctx, seal.Fingerprint(id), get)
	}
	return nil, bad("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
}

// meant reports whether what a client says of the resource is what it has said before.
func meant(said, is string) bool { return said == "" || strings.TrimSuffix(said, "/") == is }

// redeem gives tokens for a code, once (I-108).
func (f *Front) redeem(ctx context.Context, client string, get func(string) string) (map[string]any, *fault) {
	key := codeKey(get("code"))
	raw, err := f.o.Store.Get(ctx, key)
	g := &given{}
	switch {
	case err != nil:
		return nil, f.lost(err)
	case raw == nil || !f.open(key, string(raw), g):
		return nil, errCode
	case g.Used != "":
		f.o.Log.Warn("a code was used twice: what has come of it has ended", "login", g.Used)
		return nil, cmp.Or(f.revoke(ctx, g.Used), errCode)
	}
	sum := sha256.Sum256([]byte(get("code_verifier")))
	switch {
	case over(g.At, codeLife) || g.Request.Client != client || g.Request.Redirect != get("redirect_uri"),
		base64.RawURLEncoding.EncodeToString(sum[:]) != g.Request.Challenge:
		return nil, errCode
	case !meant(get("resource"), g.Request.Resource):
		return nil, errTarget
	}
	// The login is there before the code is marked: whoever finds it used finds what to end.
	if g.Login.Refresh != "" {
		if _, err := f.o.Store.Swap(ctx, loginKey(g.ID), nil, []byte(f.sealed(loginKey(g.ID), g.Login)), loginLife); err != nil {
			return nil, f.lost(err)
		}
	}
	switch first, err := f.o.Store.Swap(ctx, key, raw, []byte(f.sealed(key, given{Used: g.ID})), usedLife); {
	case err != nil:
		return nil, f.lost(err)
	case !first:
		return nil, cmp.Or(f.revoke(ctx, g.ID), errCode)
	}
	return f.issue(g.ID, &g.Login, g.Login.Scopes)
}

// lost says that the store cannot be reached.
func (f *Front) lost(err error) *fault {
	f.o.Log.Error("the store of the front cannot be reached", "err", err)
	return errStore
}

// revoke ends a login.
func (f *Front) revoke(ctx context.Context, id string) *fault {
	f.end(id)
	for {
		raw, err := f.o.Store.Get(ctx, loginKey(id))
		if err != nil {
			return f.lost(err)
		}
		if raw == nil {
			return nil
		}
		if gone, err := f.o.Store.Swap(ctx, loginKey(id), raw, nil, 0); err != nil {
			return f.lost(err)
		} else if gone {
			return nil
		}
	}
}

// renew gives tokens for a refresh token: each once, and for a moment longer, since a client
// may be several processes (I-109). The provider is asked to renew its own (I-110).
func (f *Front) renew(ctx context.Context, client string, get func(string) string) (map[string]any, *fault) {
	var shown turn
	if !f.open("refresh", get("refresh_token"), &shown) {
		return nil, errTurn
	}
	key := loginKey(shown.ID)
	for began := time.Now(); time.Since(began) < busyWait; {
		raw, err := f.o.Store.Get(ctx, key)
		l := &login{}
		switch {
		case err != nil:
			return nil, f.lost(err)
		case raw == nil || !f.open(key, string(raw), l) || l.Client != client:
			return nil, errTurn
		case !meant(get("resource"), l.Resource):
			return nil, errTarget
		}
		scopes := l.Scopes
		if wanted := strings.Fields(get("scope")); len(wanted) > 0 {
			if slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(l.Scopes, s) }) {
				return nil, bad("invalid_scope", "the user has not agreed to that scope: sign in again")
			}
			scopes = wanted
		}
		now := time.Now()
		switch {
		case shown.N == l.Turn && now.UnixMilli() < l.Busy:
			_ = pause.For(ctx, busyEvery) // ctx does not end
			continue
		case shown.N+1 == l.Turn && now.Sub(time.UnixMilli(l.Turned)) < grace:
			return f.issue(shown.ID, l, scopes)
		case shown.N != l.Turn:
			f.o.Log.Warn("a refresh token was used again: its login has ended", "issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
			return nil, cmp.Or(f.revoke(ctx, shown.ID), errTurn)
		}
		mine := *l
		mine.Busy = now.Add(busyFor).UnixMilli()
		held := []byte(f.sealed(key, mine))
		if ok, err := f.o.Store.Swap(ctx, key, raw, held, loginLife); err != nil {
			return nil, f.lost(err)
		} else if !ok {
			continue
		}
		no := f.again(ctx, l)
		if no == errTurn {
			return nil, cmp.Or(f.revoke(ctx, shown.ID), errTurn)
		}
		if no == nil {
			l.Turn++
			l.Turned = time.Now().UnixMilli()
		}
		switch ok, err := f.o.Store.Swap(ctx, key, held, []byte(f.sealed(key, l)), loginLife); {
		case no != nil:
			return nil, no
		case err != nil:
			return nil, f.lost(err)
		case !ok:
			return nil, errTurn // it has ended meanwhile
		}
		return f.issue(shown.ID, l, scopes)
	}
	return nil, errIdP
}

// again has the provider renew what it has given for a login. errTurn means that it does
// not any more.
func (f *Front) again(ctx context.Context, l *login) *fault {
	at, err := f.at(ctx)
	if err != nil {
		return errIdP
	}
	t, err := f.ask.Token(ctx, at, f.client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.Refresh}})
	log := f.o.Log.With("issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
	if err != nil {
		if grant.Refused(err) == "invalid_grant" {
			log.Info("the provider has ended a login", "err", err)
			return errTurn
		}
		log.Warn("the provider did not renew a login", "err", err)
		return errIdP
	}
	l.Refresh = cmp.Or(t.Refresh, l.Refresh) // the one before may be spent, whatever comes of this
	l.Busy = 0
	if t.ID != "" {
		// One without the nonce of the first is good, too (OpenID Connect Core §12.2).
		nonce := ""
		if p := strings.Split(t.ID, "."); len(p) == 3 {
			if body, err := base64.RawURLEncoding.DecodeString(p[1]); err == nil && gjson.GetBytes(body, "nonce").Exists() {
				nonce = l.Nonce
			}
		}
		switch err := f.identify(ctx, l, t.ID, nonce); {
		case errors.Is(err, errOtherUser):
			log.Warn("a renewed login was refused", "err", err)
			return errTurn
		case err != nil: // such as keys that are not there just now: that is no reason to sign in again
			log.Warn("a login could not be renewed", "err", err)
			return errIdP
		}
	}
	return nil
}

// issue makes the tokens of a login (I-109).
func (f *Front) issue(id string, l *login, scopes []string) (map[string]any, *fault) {
	life := aloneLife
	if l.Refresh != "" {
		life = tokenLife
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": f.o.Root, "sub": l.Subject, "aud": l.Resource, "client_id": l.ID, "scope": strings.Join(scopes, " "), "iat": now.Unix(), "exp": now.Add(life).Unix(), "jti": rand.Text(),
		"sid": id, "user": f.seals.Seal("front user", l.User),
	})
	if err != nil {
		return nil, &fault{http.StatusInternalServerError, "server_error", "no token can be made"}
	}
	signed, err := f.signer.Sign(claims)
	if err != nil {
		f.o.Log.Error("a token cannot be signed", "err", err)
		return nil, &fault{http.StatusInternalServerError, "server_error", "no token can be made"}
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return nil, &fault{http.StatusInternalServerError, "server_error", "no token can be made"}
	}
	out := map[string]any{"access_token": text, "token_type": "Bearer", "expires_in": int(life.Seconds()), "scope": strings.Join(scopes, " ")}
	if l.Refresh != "" {
		out["refresh_token"] = f.sealed("refresh", turn{id, l.Turn})
	}
	return out, nil
}

// opened returns what an access token of ours says of its user, as a token of the provider
// would, and what tells when its login has ended.
func (f *Front) opened(claims gjson.Result) (said []byte, over *atomic.Bool, err error) {
	user, err := f.seals.Open("front user", claims.Get("user").Str)
	if err != nil || len(user) < 2 {
		return nil, nil, errors.New("what it says of its user is not ours")
	}
	also, err := json.Marshal(map[string]any{"iss": f.o.Provider}) // the client and the scopes are not the provider's word
	if err != nil {
		return nil, nil, err
	}
	said = append(bytes.TrimSuffix(also, []byte("}")), ',')
	return append(said, user[1:]...), f.flag(claims.Get("sid").Str), nil
}
