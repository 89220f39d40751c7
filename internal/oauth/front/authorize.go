package front

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// request is what a client has asked for (RFC 6749 §4.1.1).
type request struct {
	Client    string   `json:"c"`           // what stands for its id
	ID        string   `json:"i"`           // see idOf
	Name      string   `json:"n,omitempty"` // as it calls itself
	Redirect  string   `json:"r"`
	State     string   `json:"s,omitempty"`
	Challenge string   `json:"p"`
	Resource  string   `json:"a"`
	Scopes    []string `json:"o,omitempty"`
	Keyed     bool     `json:"k,omitempty"` // the client shows that it has its key
	// Browser stands for the cookie of the browser that it is in the hands of, and At is
	// when it came there.
	Browser string `json:"b,omitempty"`
	At      int64  `json:"t"`
}

// over reports whether it has been there for too long.
func over(at int64, life time.Duration) bool {
	since := time.Since(time.UnixMilli(at))
	return since > life || since < -life
}

// is reports whether a secret is the one that a text stands for.
func is(secret, standsFor string) bool {
	return secret != "" && subtle.ConstantTimeCompare([]byte(seal.Fingerprint(secret)), []byte(standsFor)) == 1
}

// address returns where the client is called back. It says who has sent the browser there
// (I-111).
func (f *Front) address(q *request, values url.Values) string {
	to, err := url.Parse(q.Redirect)
	if err != nil { // it was looked at before
		return ""
	}
	values.Set("iss", f.o.Root)
	if q.State != "" {
		values.Set("state", q.State)
	}
	if to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += values.Encode()
	return to.String()
}

// leave sends the browser elsewhere.
func leave(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

func (f *Front) refuse(w http.ResponseWriter, q *request, code, text string) {
	leave(w, f.address(q, url.Values{"error": {code}, "error_description": {text}}))
}

// stop tells what is wrong with a request before the user was asked. Anybody can register a
// site here: the browser is not sent to one before its user has done something
// (RFC 9700 §4.11.2). A program on the user's machine is told at once.
func (f *Front) stop(w http.ResponseWriter, q *request, code, text string) {
	u, k := place(q.Redirect)
	if k != web {
		f.refuse(w, q, code, text)
		return
	}
	show(w, http.StatusBadRequest, shown{
		Text: "The program that has sent you here, at " + u.Host + ", asks for what is not served here: " + text + " (" + code + ").",
		Back: f.address(q, url.Values{"error": {code}, "error_description": {text}}), Host: u.Host,
	})
}

// authorize asks the user whether a client may have what it asks for. What is wrong before
// the address to go back to is known to be the client's is told the user alone.
func (f *Front) authorize(w http.ResponseWriter, r *http.Request) {
	all := r.URL.Query()
	resources := all["resource"]
	delete(all, "resource")
	get, ok := single(all)
	if !ok {
		page(w, http.StatusBadRequest, "The program that has sent you here asks for something twice.")
		return
	}
	id := get("client_id")
	c, err := f.known(r, id)
	if err != nil {
		page(w, http.StatusBadRequest, "The program that has sent you here is not known: "+err.Error()+".")
		return
	}
	q := &request{Client: seal.Fingerprint(id), ID: idOf(id), Name: c.Name, Redirect: get("redirect_uri"), State: get("state"), Challenge: get("code_challenge"), Keyed: c.keyed()}
	if !f.takes(c, q.Redirect) {
		page(w, http.StatusBadRequest, "The program that has sent you here wants you to be sent to an address that is not one of its own.")
		return
	}
	stop := func(code, text string) { f.stop(w, q, code, text) }
	switch challenge, err := base64.RawURLEncoding.DecodeString(q.Challenge); {
	case len(q.State) > maxState:
		q.State = ""
		stop("invalid_request", "state has more than 1024 bytes")
		return
	case get("response_type") != "code":
		stop("unsupported_response_type", "response_type must be code")
		return
	case get("request") != "" || get("request_uri") != "":
		stop("request_not_supported", "request and request_uri are not served here")
		return
	case q.Challenge == "" || get("code_challenge_method") != "S256" || err != nil || len(challenge) != sha256.Size:
		stop("invalid_request", "PKCE is required: code_challenge with code_challenge_method=S256")
		return
	case len(resources) > 1:
		stop("invalid_target", "a token is for one resource: ask for each by itself")
		return
	}
	q.Resource = f.o.Root
	if len(resources) == 1 && resources[0] != "" {
		q.Resource = strings.TrimSuffix(resources[0], "/")
	}
	standard, ours := f.o.Resource(q.Resource)
	if !ours {
		stop("invalid_target", "the resource is none of this server")
		return
	}
	q.Scopes = f.asked(get("scope"), standard)
	if f.remembers(r, q) && (q.ID == id || !isDocument(id)) { // otherwise the page could not name its document later
		f.begin(w, r, q, false)
		return
	}
	f.consent(w, r, q, id)
}

// consent asks the user of a browser for consent.
func (f *Front) consent(w http.ResponseWriter, r *http.Request, q *request, client string) {
	browser := cmp.Or(f.cookieOf(r, "consent"), rand.Text())
	q.Browser, q.At = seal.Fingerprint(browser), time.Now().UnixMilli()
	http.SetCookie(w, f.cookie("consent", browser, attemptLife))
	f.question(w, q, client)
}

// consented hears what the user has answered. Only the page of authorize in the same browser
// can have sent it (I-105).
func (f *Front) consented(w http.ResponseWriter, r *http.Request) {
	const foreign = "This answer did not come from the page that has asked. Go back and begin again."
	if origin := r.Header.Get("Origin"); origin != "" && origin != strings.TrimSuffix(f.o.Root, f.base) {
		page(w, http.StatusForbidden, foreign)
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		page(w, http.StatusForbidden, foreign)
		return
	}
	err := r.ParseForm()
	get, ok := single(r.PostForm)
	q := &request{}
	switch {
	case err != nil || !ok || !f.open("request", get("request"), q) || !is(f.cookieOf(r, "consent"), q.Browser):
		page(w, http.StatusForbidden, foreign)
		return
	case over(q.At, attemptLife):
		page(w, http.StatusForbidden, ended)
		return
	case get("answer") != "allow":
		f.o.Log.Info("a user did not let a client in", "client", q.ID, "from", f.o.From(r).String())
		f.refuse(w, q, "access_denied", "the user has not agreed")
		return
	}
	f.begin(w, r, q, true)
}

const (
	rememberFor = 30 * 24 * time.Hour
	maxAgreed   = 20
)

// agreed is what a user has agreed to: the client, where it is sent to, and what it gets.
func (q *request) agreed() string {
	text, _ := json.Marshal([]any{q.Client, q.Redirect, q.Resource, slices.Sorted(slices.Values(q.Scopes))}) // texts always can
	return seal.Fingerprint(string(text))
}

// remembered returns what the users of a browser have agreed to and when, the oldest first.
func (f *Front) remembered(r *http.Request) (all []agreement) {
	if f.o.Consent == ConsentRemember {
		f.open("agreed", f.cookieOf(r, "agreed"), &all)
	}
	return slices.DeleteFunc(all, func(a agreement) bool { return over(a.At, rememberFor) })
}

type agreement struct {
	To   string `json:"a"`
	User string `json:"u"` // who has agreed: stands for the subject
	At   int64  `json:"t"`
}

// remembers reports whether the user need not be asked before it is known who it is: somebody
// has agreed in this browser, a program of this machine has opened the page, and is called
// back there. No page must have led there: with one that a stranger
// has made, the user would sign a stranger's program in (I-105). Nor is it ever so for a site:
// what a link in a mail opens looks as if a program had done it.
func (f *Front) remembers(r *http.Request, q *request) bool {
	_, k := place(q.Redirect)
	to := q.agreed()
	return r.Header.Get("Sec-Fetch-Site") == "none" && k != web && slices.ContainsFunc(f.remembered(r), func(a agreement) bool { return a.To == to })
}

// agrees reports whether it is remembered that this user has agreed (I-105).
func (f *Front) agrees(r *http.Request, q *request, subject string) bool {
	to, user := q.agreed(), seal.Fingerprint(subject)
	return slices.ContainsFunc(f.remembered(r), func(a agreement) bool { return a.To == to && a.User == user })
}

// remember keeps in the browser that the user who has signed in there has agreed.
func (f *Front) remember(w http.ResponseWriter, r *http.Request, q *request, subject string) {
	if f.o.Consent != ConsentRemember {
		return
	}
	one := agreement{q.agreed(), seal.Fingerprint(subject), time.Now().UnixMilli()}
	all := append(slices.DeleteFunc(f.remembered(r), func(had agreement) bool { return had.To == one.To && had.User == one.User }), one)
	all = all[max(0, len(all)-maxAgreed):]
	http.SetCookie(w, f.cookie("agreed", f.sealed("agreed", all), rememberFor))
}

// attempt is a sign-in that is under way: the state that the provider brings back.
type attempt struct {
	Request  request `json:"q"`
	Asked    bool    `json:"k,omitempty"` // the user was asked, and has agreed; otherwise it is remembered of somebody
	Slot     string  `json:"l"`           // the name of the cookie
	Browser  string  `json:"b"`           // stands for what is in it
	Verifier string  `json:"v"`
	Nonce    string  `json:"n"`
	At       int64   `json:"t"`
}

// begin sends the browser to the provider. The cookie binds the sign-in to it (I-106).
func (f *Front) begin(w http.ResponseWriter, r *http.Request, q *request, asked bool) {
	at, err := f.at(r.Context())
	if err != nil {
		f.refuse(w, q, "temporarily_unavailable", "the identity provider cannot be reached")
		return
	}
	to, err := url.Parse(at.Authorization)
	if err != nil {
		f.refuse(w, q, "server_error", "the identity provider cannot be used")
		return
	}
	browser := rand.Text()
	a := attempt{Request: *q, Asked: asked, Slot: rand.Text()[:8], Browser: seal.Fingerprint(browser), Verifier: rand.Text() + rand.Text(), Nonce: rand.Text(), At: time.Now().UnixMilli()}
	a.Request.Browser = ""
	challenge := sha256.Sum256([]byte(a.Verifier))
	scopes := append([]string{"openid"}, f.o.Settings.Scopes...)
	if f.o.ScopePrefix != "" {
		for _, s := range q.Scopes {
			scopes = append(scopes, f.o.ScopePrefix+s)
		}
	}
	values := to.Query()
	for name, value := range f.o.AuthorizeParams {
		values.Set(name, value)
	}
	for name, value := range map[string]string{
		"response_type": "code", "client_id": f.client.ID, "redirect_uri": Callback(f.o.Root), "scope": strings.Join(scopes, " "),
		"state": f.sealed("attempt", a), "nonce": a.Nonce,
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256",
	} {
		values.Set(name, value)
	}
	to.RawQuery = values.Encode()
	http.SetCookie(w, f.cookie("signin-"+a.Slot, browser, attemptLife))
	leave(w, to.String())
}

// ended is what a user is told whose sign-in cannot go on.
const ended = "This sign-in has ended. Go back and begin again."

// callback hears from the provider. First it must be the answer to what this browser has
// asked, then of the provider that was asked; only then it is looked at (I-106, I-107).
func (f *Front) callback(w http.ResponseWriter, r *http.Request) {
	get, ok := single(r.URL.Query())
	a := &attempt{}
	if !ok || !f.open("attempt", get("state"), a) || over(a.At, attemptLife) || !is(f.cookieOf(r, "signin-"+a.Slot), a.Browser) {
		page(w, http.StatusForbidden, ended)
		return
	}
	http.SetCookie(w, f.cookie("signin-"+a.Slot, "", 0))
	q, log := &a.Request, f.o.Log.With("client", a.Request.ID, "from", f.o.From(r).String())
	sum := sha256.Sum256([]byte(get("state")))
	if !f.first(sum) {
		page(w, http.StatusForbidden, ended)
		return
	}
	at, err := f.at(r.Context())
	if err != nil {
		f.refuse(w, q, "temporarily_unavailable", "the identity provider cannot be reached")
		return
	}
	if err := at.Answered(get("iss"), r.URL.Query().Has("iss")); err != nil {
		log.Warn("a sign-in was refused", "err", err)
		page(w, http.StatusForbidden, ended)
		return
	}
	if code := get("error"); code != "" || get("code") == "" {
		log.Info("the provider did not let a user in", "error", fmt.Sprintf("%.100q", code))
		if code == "access_denied" {
			f.refuse(w, q, code, "the sign-in was refused")
		} else {
			f.refuse(w, q, "server_error", "the identity provider has let nobody in")
		}
		return
	}
	l, err := f.signIn(r, a, get("code"))
	if errors.Is(err, errBusy) {
		log.Warn("a sign-in was refused", "err", err)
		f.refuse(w, q, "temporarily_unavailable", errBusy.Error()+": try again later")
		return
	}
	if err != nil {
		log.Warn("a sign-in has failed", "err", err)
		f.refuse(w, q, "server_error", "the identity provider has let nobody in")
		return
	}
	if after := f.signing.take(l.Subject); after > 0 { // also of somebody whom no rule lets in
		log.Warn("a user signs in too often", "issuer", f.o.Provider, "sub", l.Subject)
		f.refuse(w, q, "temporarily_unavailable", "too many sign-ins of this user: try again later")
		return
	}
	if !f.admits(r.Context(), &l) { // before anything is kept of somebody who is a stranger here
		f.refuse(w, q, "access_denied", "no rule of this server lets you in")
		return
	}
	if !a.Asked && !f.agrees(r, q, l.Subject) { // who has agreed in this browser is somebody else
		f.consent(w, r, q, q.ID)
		return
	}
	ctx := context.WithoutCancel(r.Context())
	// Another instance may have heard this answer, or this one before it was started again.
	place := "state:" + hex.EncodeToString(sum[:16])
	if first, err := f.put(ctx, place, nil, []byte(f.sealed(place, true)), attemptLife, twice); err == nil && !first {
		page(w, http.StatusForbidden, ended)
		return
	} else if err != nil {
		f.refuse(w, q, f.lost(err).code, errStore.text)
		return
	}
	id := rand.Text()
	key := codeKey(id)
	ok, err = f.put(ctx, key, nil, []byte(f.sealed(key, given{Request: *q, Login: l, ID: rand.Text()})), codeLife, twice)
	if err != nil || !ok {
		log.Error("a code cannot be kept", "err", err)
		f.refuse(w, q, "temporarily_unavailable", "the store of this server cannot be reached")
		return
	}
	if a.Asked {
		f.remember(w, r, q, l.Subject)
	}
	log.Info("a user has signed in", "issuer", f.o.Provider, "sub", l.Subject, "resource", q.Resource, "renewed", l.Refresh != "")
	leave(w, f.address(q, url.Values{"code": {f.sealed("code", id)}}))
}

// admits reports whether some rule lets the user of a login in.
func (f *Front) admits(ctx context.Context, l *login) bool {
	if f.o.Admits == nil {
		return true
	}
	out, no := f.issue(rand.Text(), l, l.Scopes)
	if no != nil {
		return false
	}
	text, _ := out["access_token"].(string)
	return f.o.Admits(ctx, text, l.Resource)
}

var errBusy = errors.New("too many sign-ins come back from the provider")

// enter makes room for one more code that the provider is asked about. Anybody can make codes
// up, and each costs a request in the name of the bridge (I-114).
func (f *Front) enter(r *http.Request) (done func(), err error) {
	if f.returning.take(network(f.o.From(r))) > 0 {
		return nil, errBusy
	}
	limit := time.NewTimer(askWait)
	defer limit.Stop()
	select {
	case f.codes <- struct{}{}:
		return func() { <-f.codes }, nil
	case <-limit.C:
	case <-r.Context().Done():
	}
	return nil, errBusy
}

// signIn exchanges the code of the provider, and finds out who the user is. It goes on when
// the browser goes away.
func (f *Front) signIn(r *http.Request, a *attempt, code string) (l login, err error) {
	done, err := f.enter(r)
	if err != nil {
		return l, err
	}
	defer done()
	ctx := context.WithoutCancel(r.Context())
	at, err := f.at(ctx)
	if err != nil {
		return l, err
	}
	t, err := f.ask.Token(ctx, at, f.client, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {Callback(f.o.Root)}, "code_verifier": {a.Verifier}})
	if err != nil {
		return l, err
	}
	l = login{Client: a.Request.Client, ID: a.Request.ID, Resource: a.Request.Resource, Scopes: f.granted(a.Request.Scopes, t), Refresh: t.Refresh, Nonce: a.Nonce, Keyed: a.Request.Keyed}
	return l, f.identify(ctx, &l, t.ID, a.Nonce)
}

// granted returns the scopes that a client gets.
func (f *Front) granted(wanted []string, t *discovery.Token) (all []string) {
	switch {
	case f.o.ScopePrefix == "":
		return wanted
	case t.Scopes == nil: // it may not even know them: a rule may be for their sake alone
		f.o.Log.Warn("with scope_prefix the provider decides on scopes, but it does not say which it grants: clients get none", "issuer", f.o.Provider)
	}
	for _, s := range wanted {
		if slices.Contains(t.Scopes, f.o.ScopePrefix+s) {
			all = append(all, s)
		}
	}
	return all
}

// protocol are claims of an ID token that say something of the token and nothing of the user.
var protocol = []string{"iss", "aud", "exp", "iat", "nbf", "jti", "nonce", "azp", "at_hash", "c_hash", "s_hash", "client_id", "scope", "scp", "token_use", "typ", "cnf"}

// maxClaims is how much there may be of what an ID token says of a user: it is in each
// request of the client.
const maxClaims = 4 << 10

var errOtherUser = errors.New("the provider says now that it is another user")

// identify reads the ID token of a login: for the first time, or a newer one of the same
// user.
func (f *Front) identify(ctx context.Context, l *login, raw, nonce string) error {
	if raw == "" {
		return errors.New("the provider gives no ID token: it must know OpenID Connect")
	}
	claims, err := f.o.Identify(ctx, raw, f.client.ID, nonce)
	if err != nil {
		return err
	}
	user := map[string]json.RawMessage{}
	claims.ForEach(func(name, value gjson.Result) bool {
		if !slices.Contains(protocol, name.Str) {
			user[name.Str] = json.RawMessage(value.Raw)
		}
		return true
	})
	subject := claims.Get("sub").Str
	if l.Subject != "" && l.Subject != subject {
		return errOtherUser
	}
	text, err := json.Marshal(user)
	if err != nil {
		return err
	}
	if len(text) > maxClaims {
		return fmt.Errorf("the ID token says %d bytes of the user, more than 4096: have the provider put fewer claims, or fewer groups, into it", len(text))
	}
	l.Subject, l.User, l.Said = subject, text, time.Now().UnixMilli()
	return nil
}
