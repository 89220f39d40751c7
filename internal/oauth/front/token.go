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

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"

	"github.com/mcp-bridge/bridge/internal/backoff"
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
	Keyed    bool            `json:"k,omitempty"` // the client shows that it has its key
	// Turn is the number of the refresh token that counts.
	Turn uint64 `json:"n,omitempty"`
	// Said is when an ID token has last said what User has.
	Said int64 `json:"d,omitempty"`
	// Wrong is since when its ID tokens are of no use; 0 if the last one was good.
	Wrong int64 `json:"w,omitempty"`
}

// given is what a code is for.
type given struct {
	Request request `json:"q"`
	Login   login   `json:"l"`
	ID      string  `json:"i"`           // of the login
	Used    string  `json:"u,omitempty"` // the login that has come of it; then there is nothing else
}

// turn is a refresh token.
type turn struct {
	ID string `json:"i"` // of the login
	N  uint64 `json:"n,omitempty"`
}

// hold says that somebody renews a login, or, for a moment, has tried to.
type hold struct {
	Held bool   `json:"h,omitempty"`
	N    uint64 `json:"n,omitempty"` // the turn that is renewed
	// Former says that the turn before N still counted when this began: a slow process that
	// shows it then is no thief.
	Former bool `json:"f,omitempty"`
}

const (
	busyFor  = 40 * time.Second // longer than a request to the provider takes, and one for its keys
	busyWait = 20 * time.Second
	// Whoever waits for a renewal looks for it so often, and less and less.
	firstLook = 50 * time.Millisecond
	maxLook   = 500 * time.Millisecond
	// saidFor is how long a login goes on if the provider renews it and does not say who the
	// user is: it could have left the group that lets it in.
	saidFor = 24 * time.Hour
)

func codeKey(id string) string  { return "code:" + id }
func loginKey(id string) string { return "login:" + id }
func turnKey(id string) string  { return "turn:" + id }

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
	errMany   = &fault{http.StatusTooManyRequests, "temporarily_unavailable", "too many requests with the same code or token"}
	errKeys   = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the metadata of the client, or its keys, cannot be fetched"}
	errIdP    = &fault{http.StatusServiceUnavailable, "temporarily_unavailable", "the identity provider cannot be reached"}
)

// token gives tokens for codes, and for other tokens.
func (f *Front) token(w http.ResponseWriter, r *http.Request) {
	fresh, no := f.give(r)
	if no != nil {
		f.refused(w, no)
		return
	}
	answer(w, http.StatusOK, "no-store", fresh)
}

func (f *Front) refused(w http.ResponseWriter, no *fault) {
	if no.status == http.StatusServiceUnavailable || no.status == http.StatusTooManyRequests {
		httpio.RetryAfter(w.Header(), 5*time.Second)
	}
	fail(w, no.status, no.code, no.text)
}

// shows counts that a code or a refresh token of ours is shown. Those that are not ours cost
// nothing, and others may be behind the same address: it is no reason to keep them off (I-114).
func (f *Front) shows(key string) *fault {
	if f.showing.take(key) > 0 {
		return errMany
	}
	return nil
}

func (f *Front) give(r *http.Request) (map[string]any, *fault) {
	client, get, no := f.asker(r)
	if no != nil {
		return nil, no
	}
	ctx := context.WithoutCancel(r.Context()) // a token that the provider gives must not be lost
	switch get("grant_type") {
	case "authorization_code":
		return f.redeem(ctx, seal.Fingerprint(client), get, f.prover(r, client, get))
	case "refresh_token":
		return f.renew(ctx, seal.Fingerprint(client), get, f.prover(r, client, get))
	}
	return nil, bad("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
}

// asker returns the id of the client that sends a form, and what is in the form.
func (f *Front) asker(r *http.Request) (id string, get func(string) string, no *fault) {
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
		id = assertion.Subject(text) // RFC 7523 §3: it need not be said twice
	}
	if !isDocument(id) && f.registered(id) == nil {
		return "", nil, errClient
	}
	return id, get, nil
}

// meant reports whether what a client says of the resource is what it has said before.
func meant(said, is string) bool { return said == "" || strings.TrimSuffix(said, "/") == is }

// redeem gives tokens for a code, once (I-108).
func (f *Front) redeem(ctx context.Context, client string, get func(string) string, prove prover) (map[string]any, *fault) {
	var shown string
	if !f.open("code", get("code"), &shown) {
		return nil, errCode
	}
	key := codeKey(shown)
	if no := f.shows(key); no != nil {
		return nil, no
	}
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
	case g.Request.Client != client || g.Request.Redirect != get("redirect_uri"),
		base64.RawURLEncoding.EncodeToString(sum[:]) != g.Request.Challenge:
		return nil, errCode
	case !meant(get("resource"), g.Request.Resource):
		return nil, errTarget
	}
	if g.Login.Keyed {
		if no := prove(); no != nil {
			return nil, no
		}
	}
	// The login is there before the code is marked: whoever finds it used finds what to end.
	if g.Login.Refresh != "" {
		if _, err := f.put(ctx, loginKey(g.ID), nil, []byte(f.sealed(loginKey(g.ID), g.Login)), loginLife, tries); err != nil {
			return nil, f.lost(err)
		}
	}
	switch first, err := f.put(ctx, key, raw, []byte(f.sealed(key, given{Used: g.ID})), usedLife, tries); {
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

// revoke ends a login: here at once, and at other instances when they look. What the store
// does not take of it, Watch tries again.
func (f *Front) revoke(ctx context.Context, id string) *fault {
	f.end(id)
	if err := f.finish(ctx, id); err != nil {
		f.endings.owed.Add(id, struct{}{})
		return f.lost(err)
	}
	return nil
}

// finish ends a login in the store. A store that is full takes no notes, but still removes.
func (f *Front) finish(ctx context.Context, id string) error {
	return errors.Join(f.tell(ctx, id), f.remove(ctx, id))
}

// remove removes a login, whatever it has become meanwhile.
func (f *Front) remove(ctx context.Context, id string) error {
	for {
		raw, err := f.o.Store.Get(ctx, loginKey(id))
		if err != nil || raw == nil {
			return err
		}
		if gone, err := f.o.Store.Swap(ctx, loginKey(id), raw, nil, 0); err != nil || gone {
			return err
		}
	}
}

// renew gives tokens for a refresh token: each once, and for a moment longer, since a client
// may be several processes (I-109). The provider is asked to renew its own (I-110).
//
// Who renews holds the login for so long, and leaves a note for a moment: both end by the
// clock of the store.
func (f *Front) renew(ctx context.Context, client string, get func(string) string, prove prover) (map[string]any, *fault) {
	var shown turn
	if !f.open("refresh", get("refresh_token"), &shown) {
		return nil, errTurn
	}
	key, place, wanted := loginKey(shown.ID), turnKey(shown.ID), strings.Fields(get("scope"))
	if no := f.shows(key); no != nil {
		return nil, no
	}
	look, proved := 0, false
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
		case len(chosen(wanted, l.Scopes)) < len(wanted):
			return nil, bad("invalid_scope", "the user has not agreed to that scope: sign in again")
		}
		if l.Keyed && !proved {
			if no := prove(); no != nil {
				return nil, no
			}
			proved = true
		}
		// This is looked at after the login: a turn that has moved on has left its note before.
		note, err := f.o.Store.Get(ctx, place)
		if err != nil {
			return nil, f.lost(err)
		}
		h := &hold{}
		noted := note != nil && f.open(place, string(note), h)
		switch {
		case shown.N == l.Turn && noted && h.Held:
			look++
			_ = backoff.For(ctx, backoff.Grown(firstLook, maxLook, look)) // ctx does not end
			continue
		case shown.N+1 == l.Turn && noted && (h.N == shown.N || h.N == l.Turn && h.Former):
			return f.issue(shown.ID, l, chosen(wanted, l.Scopes))
		case shown.N != l.Turn:
			f.o.Log.Warn("a refresh token was used again: its login has ended", "issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
			return nil, cmp.Or(f.revoke(ctx, shown.ID), errTurn)
		}
		at, err := f.at(ctx)
		if err != nil {
			return nil, errIdP
		}
		mark := hold{N: l.Turn, Former: noted && h.N+1 == l.Turn}
		mine := []byte(f.sealed(place, hold{true, mark.N, mark.Former}))
		if ok, err := f.put(ctx, place, note, mine, busyFor, twice); err != nil {
			return nil, f.lost(err)
		} else if !ok {
			continue
		}
		// Whatever becomes of it, others who show the same token are not taken for thieves.
		left := func(h hold) { _, _ = f.put(ctx, place, mine, []byte(f.sealed(place, h)), grace, twice) }
		if now, err := f.o.Store.Get(ctx, key); err != nil || !bytes.Equal(now, raw) {
			if noted {
				mark = *h // of a later turn, perhaps
			}
			if left(mark); err != nil {
				return nil, f.lost(err)
			}
			continue // somebody has renewed it between the two looks
		}
		no := f.again(ctx, at, l)
		if no == errTurn {
			return nil, cmp.Or(f.revoke(ctx, shown.ID), errTurn)
		}
		if no == nil {
			l.Turn++
		}
		ok, err := f.put(ctx, key, raw, []byte(f.sealed(key, l)), loginLife, tries)
		switch left(mark); {
		case no != nil:
			return nil, no
		case err != nil:
			return nil, f.lost(err)
		case !ok:
			return nil, errTurn // it has ended meanwhile
		}
		return f.issue(shown.ID, l, chosen(wanted, l.Scopes))
	}
	return nil, errIdP
}

// chosen returns those scopes of a login that a client wants; all without a word of it.
func chosen(wanted, has []string) (all []string) {
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

// again has the provider renew what it has given for a login. errTurn means that it does
// not any more. What it takes back, the login has not any more.
func (f *Front) again(ctx context.Context, at *discovery.Issuer, l *login) *fault {
	t, err := f.ask.Token(ctx, at, f.client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.Refresh}})
	log := f.o.Log.With("issuer", f.o.Provider, "sub", l.Subject, "client", l.ID)
	if err != nil {
		if discovery.Refused(err) == "invalid_grant" {
			log.Info("the provider has ended a login", "err", err)
			return errTurn
		}
		log.Warn("the provider did not renew a login", "err", err)
		return errIdP
	}
	l.Refresh = cmp.Or(t.Refresh, l.Refresh) // the one before may be spent, whatever comes of this
	if f.o.ScopePrefix != "" && t.Scopes != nil {
		l.Scopes = f.granted(l.Scopes, t)
	}
	if t.ID == "" && over(l.Said, saidFor) {
		log.Info("a login has ended: for a day, the provider has not said who its user is; it should give an ID token with each renewal")
		return errTurn
	}
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
			if l.Wrong = cmp.Or(l.Wrong, time.Now().UnixMilli()); over(l.Wrong, saidFor) {
				log.Info("a login has ended: for a day, no ID token of its user was good")
				return errTurn
			}
			return errIdP
		}
		l.Wrong = 0
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
func (f *Front) opened(claims gjson.Result) (said []byte, over func() bool, err error) {
	user, err := f.seals.Open("front user", claims.Get("user").Str)
	if err != nil || len(user) < 2 {
		return nil, nil, errors.New("what it says of its user is not ours")
	}
	also, err := json.Marshal(map[string]any{"iss": f.o.Provider}) // the client and the scopes are not the provider's word
	if err != nil {
		return nil, nil, err
	}
	if !f.endings.known.Load() { // a login may have ended before this process began
		f.look(context.Background(), "") // the store has a limit of its own
	}
	said = append(bytes.TrimSuffix(also, []byte("}")), ',')
	id := strings.Clone(claims.Get("sid").Str) // of the token, which is kept for longer, only this
	return append(said, user[1:]...), func() bool { return f.over(id) }, nil
}
