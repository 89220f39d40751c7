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
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// login is a user's sign-in with a client for a resource.
type login struct {
	Client   string          `json:"c"` // fingerprint of the client's id
	ID       string          `json:"i"` // see idOf
	Resource string          `json:"a"`
	Scopes   []string        `json:"o,omitempty"`
	Subject  string          `json:"s"`
	User     json.RawMessage `json:"u"`           // the provider's claims about the user
	Refresh  string          `json:"r,omitempty"` // the provider's refresh token; empty if there is none
	Nonce    string          `json:"x"`
	Keyed    bool            `json:"k,omitempty"` // the client authenticates with a key
	// Turn is the number of the current refresh token.
	Turn uint64 `json:"n,omitempty"`
	// UserAt is when an ID token last confirmed User.
	UserAt int64 `json:"d,omitempty"`
	// InvalidSince is when the login's ID tokens became invalid, or 0 if the last ID token was valid.
	InvalidSince int64 `json:"w,omitempty"`
}

// codeValue is the stored value of a code.
type codeValue struct {
	Request request `json:"q"`
	Login   login   `json:"l"`
	ID      string  `json:"i"`           // id of the login
	Used    string  `json:"u,omitempty"` // id of the login for which the code was exchanged; the other fields are then empty
}

// refreshToken is the content of a refresh token.
type refreshToken struct {
	ID string `json:"i"` // id of the login
	N  uint64 `json:"n,omitempty"`
}

// renewal marks a login that is being renewed or was renewed a moment ago.
type renewal struct {
	Held bool   `json:"h,omitempty"`
	N    uint64 `json:"n,omitempty"` // the turn being renewed
	// OldWorked means that turn N-1 still worked when this renewal began. A process that sends turn N-1 now is slow,
	// not a thief.
	OldWorked bool `json:"f,omitempty"`
}

const (
	holdLife  = 50 * time.Second // longer than three requests to the provider, for a token, keys and userinfo
	renewWait = 20 * time.Second
	// firstLook and maxLook bound the interval between two looks whether another renewal has ended.
	firstLook = 50 * time.Millisecond
	maxLook   = 500 * time.Millisecond
	// unconfirmedFor limits a login that the provider renews without confirming the user. The user could have left a
	// group that access rules need.
	unconfirmedFor = 24 * time.Hour
)

func codeKey(id string) string  { return "code:" + id }
func loginKey(id string) string { return "login:" + id }
func turnKey(id string) string  { return "turn:" + id }

// fault is an error of the token endpoint.
type fault struct {
	status     int
	code, text string
}

func bad(code, text string) *fault { return &fault{http.StatusBadRequest, code, text} }

var (
	errClient = &fault{http.StatusUnauthorized, "invalid_client", "the client is not registered at this server: register it again"}
	errCode   = bad("invalid_grant", "the code is unknown, used or expired: sign in again")
	errTurn   = bad("invalid_grant", "the refresh token is unknown, used or expired: sign in again")
	errTarget = bad("invalid_target", "resource must be the one of the authorization request")
	errStore  = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "this server cannot reach its store: try again later"}
	errMany   = &fault{http.StatusTooManyRequests, "temporarily_unavailable", "too many requests with the same code or token: try again later"}
	errKeys   = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the metadata or keys of the client cannot be fetched: try again later"}
	errIdP    = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the identity provider cannot be reached: try again later"}
)

// token exchanges a code or a refresh token for tokens.
func (f *Front) token(w http.ResponseWriter, r *http.Request) {
	tokens, refusal := f.exchange(r)
	if refusal != nil {
		f.refused(w, refusal)
		return
	}
	answer(w, http.StatusOK, "no-store", tokens)
}

func (f *Front) refused(w http.ResponseWriter, refusal *fault) {
	if refusal.status == http.StatusServiceUnavailable || refusal.status == http.StatusTooManyRequests {
		httpio.RetryAfter(w.Header(), 5*time.Second)
	}
	fail(w, refusal.status, refusal.code, refusal.text)
}

// limitUse limits how often one code or refresh token may be sent. Unknown codes and tokens cost nothing, and many
// clients may share an address, so addresses are not limited (I-114).
func (f *Front) limitUse(key string) *fault {
	if f.uses.take(key) > 0 {
		return errMany
	}
	return nil
}

func (f *Front) exchange(r *http.Request) (map[string]any, *fault) {
	client, get, refusal := f.readForm(r)
	if refusal != nil {
		return nil, refusal
	}
	ctx := context.WithoutCancel(r.Context()) // the provider's new token must not be lost
	switch get("grant_type") {
	case "authorization_code":
		return f.redeem(ctx, seal.Fingerprint(client), get, f.prover(r, client, get))
	case "refresh_token":
		return f.renew(ctx, seal.Fingerprint(client), get, f.prover(r, client, get))
	}
	return nil, bad("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
}

// readForm returns the id of the client that sent a form, and a getter of the form's parameters.
func (f *Front) readForm(r *http.Request) (id string, get func(string) string, refusal *fault) {
	err := r.ParseForm()
	get, ok := single(r.PostForm)
	if err != nil || !ok {
		return "", nil, bad("invalid_request", "the body must be a form, with each parameter once")
	}
	id = get("client_id")
	if name, secret, basic := r.BasicAuth(); basic {
		name, err := url.QueryUnescape(name)
		if err != nil || secret != "" || id != "" && id != name {
			return "", nil, errClient
		}
		id = name
	}
	if text := get("client_assertion"); id == "" && text != "" {
		id = assertedClient(text) // client_id may be left out (RFC 7523 §3)
	}
	if !isDocument(id) && f.registered(id) == nil {
		return "", nil, errClient
	}
	return id, get, nil
}

// sameResource reports whether a client's resource parameter fits the resource of its login. The parameter may be empty
// or have an additional slash at its end.
func sameResource(said, is string) bool { return said == "" || strings.TrimSuffix(said, "/") == is }

// redeem exchanges a code for tokens, only once (I-108).
func (f *Front) redeem(ctx context.Context, client string, get func(string) string, prove prover) (map[string]any, *fault) {
	var shown string
	if !f.open("code", get("code"), &shown) {
		return nil, errCode
	}
	key := codeKey(shown)
	if refusal := f.limitUse(key); refusal != nil {
		return nil, refusal
	}
	raw, err := f.o.Store.Get(ctx, key)
	c := &codeValue{}
	switch {
	case err != nil:
		return nil, f.storeFailed(err)
	case raw == nil || !f.open(key, string(raw), c):
		return nil, errCode
	case c.Used != "":
		f.o.Log.Warn("a code was used twice: its login was ended", "login", c.Used)
		return nil, cmp.Or(f.revoke(ctx, c.Used), errCode)
	}
	sum := sha256.Sum256([]byte(get("code_verifier")))
	switch {
	case c.Request.Client != client || c.Request.Redirect != get("redirect_uri"),
		base64.RawURLEncoding.EncodeToString(sum[:]) != c.Request.Challenge:
		return nil, errCode
	case !sameResource(get("resource"), c.Request.Resource):
		return nil, errTarget
	}
	if c.Login.Keyed {
		if refusal := prove(); refusal != nil {
			return nil, refusal
		}
	}
	// The login is stored before the code is marked as used, because a second use of the code must find the login and
	// end it.
	if c.Login.Refresh != "" {
		if _, err := f.put(ctx, loginKey(c.ID), nil, []byte(f.sealed(loginKey(c.ID), c.Login)), loginLife, tries); err != nil {
			return nil, f.storeFailed(err)
		}
	}
	switch first, err := f.put(ctx, key, raw, []byte(f.sealed(key, codeValue{Used: c.ID})), usedLife, tries); {
	case err != nil:
		return nil, f.storeFailed(err)
	case !first:
		return nil, cmp.Or(f.revoke(ctx, c.ID), errCode)
	}
	return f.issue(c.ID, &c.Login, c.Login.Scopes)
}

// storeFailed logs that the store failed, and returns the fault.
func (f *Front) storeFailed(err error) *fault {
	f.o.Log.Error("the front cannot reach its store", "err", err)
	return errStore
}

// revoke ends a login: at this instance at once, and at other instances when they next read the store. Watch retries
// endings that the store does not accept.
func (f *Front) revoke(ctx context.Context, id string) *fault {
	f.markEnded(id)
	if err := f.endInStore(ctx, id); err != nil {
		f.endings.owed.Add(id, struct{}{})
		return f.storeFailed(err)
	}
	return nil
}

// endInStore ends a login in the store. A full store does not record the end, but still removes the login.
func (f *Front) endInStore(ctx context.Context, id string) error {
	return errors.Join(f.recordEnd(ctx, id), f.remove(ctx, id))
}

// remove removes a login, even if another process changes it meanwhile.
func (f *Front) remove(ctx context.Context, id string) error {
	for {
		raw, err := f.o.Store.Get(ctx, loginKey(id))
		if err != nil || raw == nil {
			return err
		}
		if removed, err := f.o.Store.Swap(ctx, loginKey(id), raw, nil, 0); err != nil || removed {
			return err
		}
	}
}

// renew exchanges a refresh token for tokens. A refresh token works only once, and for a moment longer because a client
// may have several processes (I-109). The provider must renew its own token first (I-110).
//
// A renewal holds the login and leaves its hold in the store for a moment. Both expire by the store's clock.
func (f *Front) renew(ctx context.Context, client string, get func(string) string, prove prover) (map[string]any, *fault) {
	var given refreshToken
	if !f.open("refresh", get("refresh_token"), &given) {
		return nil, errTurn
	}
	key, holdKey, wanted := loginKey(given.ID), turnKey(given.ID), discovery.SplitScopes(get("scope"))
	if refusal := f.limitUse(key); refusal != nil {
		return nil, refusal
	}
	looks, proved := 0, false
	for began := time.Now(); time.Since(began) < renewWait; {
		raw, err := f.o.Store.Get(ctx, key)
		l := &login{}
		switch {
		case err != nil:
			return nil, f.storeFailed(err)
		case raw == nil || !f.open(key, string(raw), l) || l.Client != client:
			return nil, errTurn
		case !sameResource(get("resource"), l.Resource):
			return nil, errTarget
		case len(subset(wanted, l.Scopes)) < len(wanted):
			return nil, bad("invalid_scope", "the user has not agreed to that scope: sign in again")
		}
		if l.Keyed && !proved {
			if refusal := prove(); refusal != nil {
				return nil, refusal
			}
			proved = true
		}
		// The hold is read after the login: a renewal of an older turn has already released its hold.
		oldHold, err := f.o.Store.Get(ctx, holdKey)
		if err != nil {
			return nil, f.storeFailed(err)
		}
		r := &renewal{}
		held := oldHold != nil && f.open(holdKey, string(oldHold), r)
		switch {
		case given.N == l.Turn && held && r.Held:
			looks++
			_ = backoff.For(ctx, backoff.Grown(firstLook, maxLook, looks)) // ctx does not end
			continue
		case given.N+1 == l.Turn && held && (r.N == given.N || r.N == l.Turn && r.OldWorked):
			return f.issue(given.ID, l, subset(wanted, l.Scopes))
		case given.N != l.Turn:
			f.o.Log.Warn("a refresh token was used again: its login was ended", "issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
			return nil, cmp.Or(f.revoke(ctx, given.ID), errTurn)
		}
		at, err := f.providerMetadata(ctx)
		if err != nil {
			return nil, errIdP
		}
		after := renewal{N: l.Turn, OldWorked: held && r.N+1 == l.Turn}
		myHold := []byte(f.sealed(holdKey, renewal{true, after.N, after.OldWorked}))
		if ok, err := f.put(ctx, holdKey, oldHold, myHold, holdLife, twice); err != nil {
			return nil, f.storeFailed(err)
		} else if !ok {
			continue
		}
		// Whatever the result, the mark stays for grace, so that other processes with the same token do not count as
		// thieves.
		release := func(r renewal) { _, _ = f.put(ctx, holdKey, myHold, []byte(f.sealed(holdKey, r)), grace, twice) }
		if now, err := f.o.Store.Get(ctx, key); err != nil || !bytes.Equal(now, raw) {
			if held {
				after = *r // maybe the hold of a later turn
			}
			if release(after); err != nil {
				return nil, f.storeFailed(err)
			}
			continue // another process renewed the login between the two reads
		}
		refusal := f.renewAtProvider(ctx, at, l)
		if refusal == errTurn {
			return nil, cmp.Or(f.revoke(ctx, given.ID), errTurn)
		}
		if refusal == nil {
			l.Turn++
		}
		ok, err := f.put(ctx, key, raw, []byte(f.sealed(key, l)), loginLife, tries)
		switch release(after); {
		case refusal != nil:
			return nil, refusal
		case err != nil:
			return nil, f.storeFailed(err)
		case !ok:
			return nil, errTurn // the login has ended meanwhile
		}
		return f.issue(given.ID, l, subset(wanted, l.Scopes))
	}
	return nil, errIdP
}

// subset returns the wanted scopes that a login has. If wanted is empty, it returns all of the login's scopes.
func subset(wanted, has []string) (all []string) {
	if len(wanted) == 0 {
		return has
	}
	for _, s := range wanted {
		if slices.Contains(has, s) {
			all = append(all, s)
		}
	}
	return all
}

// renewAtProvider renews the provider's token of a login. errTurn means that the provider has ended the login. The
// login loses scopes that the provider takes back.
func (f *Front) renewAtProvider(ctx context.Context, at *discovery.Issuer, l *login) *fault {
	t, err := f.ask.Token(ctx, at, f.client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.Refresh}})
	log := f.o.Log.With("issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
	if err != nil {
		if discovery.Refused(err) == "invalid_grant" {
			log.Info("the provider ended a login", "err", err)
			return errTurn
		}
		log.Warn("the provider did not renew a login", "err", err)
		return errIdP
	}
	l.Refresh = cmp.Or(t.Refresh, l.Refresh) // the old token may be used up in any case
	if f.o.ScopePrefix != "" && t.Scopes != nil {
		l.Scopes = f.grantedBy(l.Scopes, t)
	}
	if t.ID == "" && older(l.UserAt, unconfirmedFor) {
		log.Info("a login ended: the provider sent no ID token for a day; it must send one with each renewal")
		return errTurn
	}
	if t.ID != "" {
		// A new ID token may leave out the nonce of the first ID token (OpenID Connect Core §12.2).
		nonce := ""
		if p := strings.Split(t.ID, "."); len(p) == 3 {
			if body, err := base64.RawURLEncoding.DecodeString(p[1]); err == nil && gjson.GetBytes(body, "nonce").Exists() {
				nonce = l.Nonce
			}
		}
		switch err := f.identify(ctx, at, l, t, nonce); {
		case errors.Is(err, errOtherUser):
			log.Warn("a renewed login was refused", "err", err)
			return errTurn
		case err != nil: // such as keys that cannot be fetched now: the user need not sign in again
			log.Warn("a login could not be renewed", "err", err)
			if l.InvalidSince = cmp.Or(l.InvalidSince, time.Now().UnixMilli()); older(l.InvalidSince, unconfirmedFor) {
				log.Info("a login ended: no ID token of its user was valid for a day")
				return errTurn
			}
			return errIdP
		}
		l.InvalidSince = 0
	}
	return nil
}

// issue issues the tokens of a login (I-109).
func (f *Front) issue(id string, l *login, scopes []string) (map[string]any, *fault) {
	life := plainLife
	if l.Refresh != "" {
		life = tokenLife
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": f.o.Root, "sub": l.Subject, "aud": l.Resource, "client_id": l.ID, "scope": strings.Join(scopes, " "), "iat": now.Unix(), "exp": now.Add(life).Unix(), "jti": rand.Text(),
		"sid": id, "user": f.seals.Seal("front user", l.User),
	})
	if err != nil {
		return nil, &fault{http.StatusInternalServerError, "server_error", "this server cannot make a token: its log says why"}
	}
	signed, err := f.signer.Sign(claims)
	if err != nil {
		f.o.Log.Error("a token cannot be signed", "err", err)
		return nil, &fault{http.StatusInternalServerError, "server_error", "this server cannot make a token: its log says why"}
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return nil, &fault{http.StatusInternalServerError, "server_error", "this server cannot make a token: its log says why"}
	}
	out := map[string]any{"access_token": text, "token_type": "Bearer", "expires_in": int(life.Seconds()), "scope": strings.Join(scopes, " ")}
	if l.Refresh != "" {
		out["refresh_token"] = f.sealed("refresh", refreshToken{id, l.Turn})
	}
	return out, nil
}

// userClaims returns the user's claims in an access token of the front, in the form of the provider's tokens. over
// reports whether the login has ended.
func (f *Front) userClaims(claims gjson.Result) (said []byte, over func() bool, err error) {
	user, err := f.seals.Open("front user", claims.Get("user").Str)
	if err != nil || len(user) < 2 {
		return nil, nil, errors.New("its claim user was not sealed by this server")
	}
	also, err := json.Marshal(map[string]any{"iss": f.o.Provider}) // without the client and the scopes, which are the front's and not the provider's
	if err != nil {
		return nil, nil, err
	}
	if !f.endings.known.Load() { // the login may have ended before this process started
		f.readEnded(context.Background(), "") // the store has its own timeout
	}
	said = append(bytes.TrimSuffix(also, []byte("}")), ',')
	id := strings.Clone(claims.Get("sid").Str) // a clone, which does not keep the whole token in memory
	return append(said, user[1:]...), func() bool { return f.hasEnded(id) }, nil
}
