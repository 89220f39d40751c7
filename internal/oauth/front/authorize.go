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

	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// request is an authorization request (RFC 6749 §4.1.1).
type request struct {
	Client    string   `json:"c"`           // fingerprint of the client's id
	ID        string   `json:"i"`           // value of idOf
	Name      string   `json:"n,omitempty"` // name that the client gives itself
	Redirect  string   `json:"r"`
	State     string   `json:"s,omitempty"`
	Challenge string   `json:"p"`
	Resource  string   `json:"a"`
	Scopes    []string `json:"o,omitempty"`
	Keyed     bool     `json:"k,omitempty"` // the client authenticates with a key
	// Browser is the fingerprint of the consent cookie of the browser that shows the page. At is when it was shown, in
	// Unix milliseconds.
	Browser string `json:"b,omitempty"`
	At      int64  `json:"t"`
}

// older reports whether at, in Unix milliseconds, is more than life away from now.
func older(at int64, life time.Duration) bool {
	since := time.Since(time.UnixMilli(at))
	return since > life || since < -life
}

// hasFingerprint reports whether standsFor is the fingerprint of secret.
func hasFingerprint(secret, standsFor string) bool {
	return secret != "" && subtle.ConstantTimeCompare([]byte(seal.Fingerprint(secret)), []byte(standsFor)) == 1
}

// address returns the client's redirect address with the values. The parameter iss names the front (I-111).
func (f *Front) address(r *request, values url.Values) string {
	to, err := url.Parse(r.Redirect)
	if err != nil { // authorize has parsed it before
		return ""
	}
	values.Set("iss", f.o.Root)
	if r.State != "" {
		values.Set("state", r.State)
	}
	if to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += values.Encode()
	return to.String()
}

func redirect(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

func (f *Front) refuse(w http.ResponseWriter, r *request, code, text string) {
	redirect(w, f.address(r, url.Values{"error": {code}, "error_description": {text}}))
}

// stop refuses a request before the user was asked. Anybody can register a web site as a client, so the browser is not
// sent to a web site before its user has done something (RFC 9700 §4.11.2). A program on the user's machine gets the
// error at once.
func (f *Front) stop(w http.ResponseWriter, r *request, code, text string) {
	u, k := classify(r.Redirect)
	if k != web {
		f.refuse(w, r, code, text)
		return
	}
	show(w, http.StatusBadRequest, pageData{
		Text: "The program at " + u.Host + " that sent you here made a request that this server refuses: " + text + " (" + code + ").",
		Back: f.address(r, url.Values{"error": {code}, "error_description": {text}}), Host: u.Host,
	})
}

// authorize asks the user for consent. Until it knows that redirect_uri is the client's, it shows errors only to the
// user.
func (f *Front) authorize(w http.ResponseWriter, r *http.Request) {
	all := r.URL.Query()
	resources := all["resource"]
	delete(all, "resource")
	get, ok := single(all)
	if !ok {
		page(w, http.StatusBadRequest, "The program that sent you here sent a parameter twice: its address must have each once.")
		return
	}
	id := get("client_id")
	c, err := f.findClient(r, id)
	if err != nil {
		page(w, http.StatusBadRequest, "The program that sent you here is unknown: "+err.Error()+".")
		return
	}
	q := &request{
		Client:    seal.Fingerprint(id),
		ID:        idOf(id),
		Name:      c.Name,
		Redirect:  get("redirect_uri"),
		State:     get("state"),
		Challenge: get("code_challenge"),
		Keyed:     c.keyed(),
	}
	if !f.allowsRedirect(c, q.Redirect) {
		page(w, http.StatusBadRequest, "The program that sent you here asks to send you to an address that it did not register.")
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
		stop("request_not_supported", "this server takes no request and no request_uri: send the parameters themselves")
		return
	case get("response_mode") != "" && get("response_mode") != "query":
		stop("invalid_request", "response_mode must be query, or be left out")
		return
	case slices.Contains(strings.Fields(get("prompt")), "none"):
		stop("interaction_required", "this server asks its users on a page: leave out prompt=none")
		return
	case q.Challenge == "" || get("code_challenge_method") != "S256" || err != nil || len(challenge) != sha256.Size:
		stop("invalid_request", "PKCE is required: code_challenge with code_challenge_method=S256")
		return
	case len(resources) > 1:
		stop("invalid_target", "a token is for one resource: request one for each")
		return
	}
	q.Resource = f.o.Root
	if len(resources) == 1 && resources[0] != "" {
		q.Resource = strings.TrimSuffix(resources[0], "/")
	}
	standard, ours := f.o.Bridge.Resource(q.Resource)
	if !ours {
		stop("invalid_target", "the resource is not on this server: take it from the server's protected resource metadata")
		return
	}
	q.Scopes = f.grantedScopes(get("scope"), standard)
	if f.skipsConsent(r, q) && (q.ID == id || !isDocument(id)) { // otherwise a later consent page could not name the client's document
		f.begin(w, r, q, false)
		return
	}
	f.consent(w, r, q, id)
}

func (f *Front) consent(w http.ResponseWriter, r *http.Request, q *request, client string) {
	browser := cmp.Or(f.cookieOf(r, "consent"), rand.Text())
	q.Browser, q.At = seal.Fingerprint(browser), time.Now().UnixMilli()
	http.SetCookie(w, f.cookie("consent", browser, attemptLife))
	f.question(w, q, client)
}

// consentAnswer handles the user's answer. It must come from the consent page in the same browser (I-105).
func (f *Front) consentAnswer(w http.ResponseWriter, r *http.Request) {
	const foreign = "This answer did not come from the consent page of this browser. Go back and begin again."
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
	case err != nil || !ok || !f.open("request", get("request"), q) || !hasFingerprint(f.cookieOf(r, "consent"), q.Browser):
		page(w, http.StatusForbidden, foreign)
		return
	case older(q.At, attemptLife):
		page(w, http.StatusForbidden, pageEnded)
		return
	case get("answer") != "allow":
		f.o.Log.Info("a user denied consent to a client", "client", q.ID, "from", f.o.Bridge.From(r).String())
		f.refuse(w, q, "access_denied", "the user did not agree")
		return
	}
	f.begin(w, r, q, true)
}

const (
	rememberFor = 30 * 24 * time.Hour
	maxAgreed   = 20
)

// consentKey returns the fingerprint of what a user consents to: client, redirect address, resource and scopes.
func (r *request) consentKey() string {
	text, _ := json.Marshal([]any{r.Client, r.Redirect, r.Resource, slices.Sorted(slices.Values(r.Scopes))}) // texts always encode
	return seal.Fingerprint(string(text))
}

// agreements returns the consents that the browser stores, the oldest first, without those older than rememberFor.
// Unless the setting is ConsentRemember, there are none.
func (f *Front) agreements(r *http.Request) (all []agreement) {
	if f.o.Consent == ConsentRemember {
		f.open("agreed", f.cookieOf(r, "agreed"), &all)
	}
	return slices.DeleteFunc(all, func(a agreement) bool { return older(a.At, rememberFor) })
}

type agreement struct {
	To   string `json:"a"`
	User string `json:"u"` // fingerprint of the user's subject
	At   int64  `json:"t"`
}

// skipsConsent reports whether the sign-in can begin without the consent page. Then someone has agreed in this browser,
// and the answer goes to a program on this machine. No other page may lead here, since a stranger's page could make the
// user sign in to the stranger's program (I-105). A web site always needs the consent page, since a link in a mail
// looks as if a program had opened it.
func (f *Front) skipsConsent(r *http.Request, q *request) bool {
	_, k := classify(q.Redirect)
	to := q.consentKey()
	return r.Header.Get("Sec-Fetch-Site") == "none" && k != web && slices.ContainsFunc(f.agreements(r), func(a agreement) bool { return a.To == to })
}

// hasAgreed reports whether the browser stores this user's consent (I-105).
func (f *Front) hasAgreed(r *http.Request, q *request, subject string) bool {
	to, user := q.consentKey(), seal.Fingerprint(subject)
	return slices.ContainsFunc(f.agreements(r), func(a agreement) bool { return a.To == to && a.User == user })
}

// remember stores this user's consent in the browser.
func (f *Front) remember(w http.ResponseWriter, r *http.Request, q *request, subject string) {
	if f.o.Consent != ConsentRemember {
		return
	}
	one := agreement{q.consentKey(), seal.Fingerprint(subject), time.Now().UnixMilli()}
	all := append(slices.DeleteFunc(f.agreements(r), func(a agreement) bool { return a.To == one.To && a.User == one.User }), one)
	all = all[max(0, len(all)-maxAgreed):]
	http.SetCookie(w, f.cookie("agreed", f.sealed("agreed", all), rememberFor))
}

// attempt is a sign-in in progress. The provider returns it as the sealed state.
type attempt struct {
	Request  request `json:"q"`
	Asked    bool    `json:"k,omitempty"` // the user has just agreed; otherwise the browser stores the consent of some user
	Slot     string  `json:"l"`           // suffix of the name of the cookie
	Browser  string  `json:"b"`           // fingerprint of the value of the cookie
	Verifier string  `json:"v"`
	Nonce    string  `json:"n"`
	At       int64   `json:"t"`
}

// begin sends the browser to the provider. A cookie ties the sign-in to the browser (I-106).
func (f *Front) begin(w http.ResponseWriter, r *http.Request, q *request, asked bool) {
	at, err := f.providerMetadata(r.Context())
	if err != nil {
		f.refuse(w, q, errIdP.code, errIdP.text)
		return
	}
	to, err := url.Parse(at.Authorization)
	if err != nil {
		f.refuse(w, q, "server_error", "the identity provider's authorization_endpoint is not a URL")
		return
	}
	browser := rand.Text()
	a := attempt{
		Request:  *q,
		Asked:    asked,
		Slot:     rand.Text()[:8],
		Browser:  seal.Fingerprint(browser),
		Verifier: rand.Text() + rand.Text(),
		Nonce:    rand.Text(),
		At:       time.Now().UnixMilli(),
	}
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
	redirect(w, to.String())
}

// pageEnded is the text of the page for a sign-in that cannot continue.
const pageEnded = "This sign-in has ended. Go back and begin again."

// callback handles the provider's answer. It first checks that the answer is for an attempt of this browser, and comes
// from the right provider (I-106, I-107).
func (f *Front) callback(w http.ResponseWriter, r *http.Request) {
	get, ok := single(r.URL.Query())
	a := &attempt{}
	if !ok || !f.open("attempt", get("state"), a) || older(a.At, attemptLife) || !hasFingerprint(f.cookieOf(r, "signin-"+a.Slot), a.Browser) {
		page(w, http.StatusForbidden, pageEnded)
		return
	}
	http.SetCookie(w, f.cookie("signin-"+a.Slot, "", 0))
	q, log := &a.Request, f.o.Log.With("client", a.Request.ID, "from", f.o.Bridge.From(r).String())
	sum := sha256.Sum256([]byte(get("state")))
	if !f.firstReturn(sum) {
		page(w, http.StatusForbidden, pageEnded)
		return
	}
	at, err := f.providerMetadata(r.Context())
	if err != nil {
		f.refuse(w, q, errIdP.code, errIdP.text)
		return
	}
	if err := at.Answered(get("iss"), r.URL.Query().Has("iss")); err != nil {
		log.Warn("a sign-in was refused", "err", err)
		page(w, http.StatusForbidden, pageEnded)
		return
	}
	if code := get("error"); code != "" || get("code") == "" {
		log.Info("the provider refused a sign-in", "error", fmt.Sprintf("%.100q", code))
		if code == "access_denied" {
			f.refuse(w, q, code, "the identity provider refused the sign-in")
		} else {
			f.refuse(w, q, "server_error", "the sign-in at the identity provider failed: the bridge's log says why")
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
		log.Warn("a sign-in failed", "err", err)
		f.refuse(w, q, "server_error", "the sign-in at the identity provider failed: the bridge's log says why")
		return
	}
	if after := f.signing.take(l.Subject); after > 0 { // before the access rules, so that it also limits strangers
		log.Warn("a user signs in too often", "issuer", f.o.Provider, "sub", l.Subject)
		f.refuse(w, q, "temporarily_unavailable", "too many sign-ins of this user: try again later")
		return
	}
	if !f.admits(r.Context(), &l) { // before the store gets anything of a stranger
		f.refuse(w, q, "access_denied", "no access rule of this server admits you: ask its operator")
		return
	}
	if !a.Asked && !f.hasAgreed(r, q, l.Subject) { // another user has agreed in this browser
		f.consent(w, r, q, q.ID)
		return
	}
	ctx := context.WithoutCancel(r.Context())
	// Another instance, or this one before a restart, may have handled the answer already.
	key := "state:" + hex.EncodeToString(sum[:16])
	if first, err := f.put(ctx, key, nil, []byte(f.sealed(key, true)), attemptLife, twice); err == nil && !first {
		page(w, http.StatusForbidden, pageEnded)
		return
	} else if err != nil {
		f.refuse(w, q, f.storeFailed(err).code, errStore.text)
		return
	}
	id := rand.Text()
	key = codeKey(id)
	ok, err = f.put(ctx, key, nil, []byte(f.sealed(key, codeValue{
		Request: *q,
		Login:   l,
		ID:      rand.Text(),
	})), codeLife, twice)
	if err != nil || !ok {
		log.Error("a code cannot be stored", "err", err)
		f.refuse(w, q, errStore.code, errStore.text)
		return
	}
	if a.Asked {
		f.remember(w, r, q, l.Subject)
	}
	log.Info("a user has signed in", "issuer", f.o.Provider, "sub", l.Subject, "resource", q.Resource, "renewed", l.Refresh != "")
	redirect(w, f.address(q, url.Values{"code": {f.sealed("code", id)}}))
}

// admits reports whether an access rule admits the user of a login.
func (f *Front) admits(ctx context.Context, l *login) bool {
	out, refusal := f.issue(rand.Text(), l, l.Scopes)
	if refusal != nil {
		return false
	}
	text, _ := out["access_token"].(string)
	return f.o.Bridge.Admits(ctx, text, l.Resource)
}

var errBusy = errors.New("too many sign-ins at once")

// takeSlot takes a slot to exchange a code at the provider. Anybody can make up codes, and each of them costs a request
// of the bridge (I-114).
func (f *Front) takeSlot(r *http.Request) (done func(), err error) {
	if f.returning.take(network(f.o.Bridge.From(r))) > 0 {
		return nil, errBusy
	}
	limit := time.NewTimer(slotWait)
	defer limit.Stop()
	select {
	case f.codeSlots <- struct{}{}:
		return func() { <-f.codeSlots }, nil
	case <-limit.C:
	case <-r.Context().Done():
	}
	return nil, errBusy
}

// signIn exchanges the provider's code, and identifies the user. It continues if the browser disconnects.
func (f *Front) signIn(r *http.Request, a *attempt, code string) (l login, err error) {
	done, err := f.takeSlot(r)
	if err != nil {
		return l, err
	}
	defer done()
	ctx := context.WithoutCancel(r.Context())
	at, err := f.providerMetadata(ctx)
	if err != nil {
		return l, err
	}
	t, err := f.ask.Token(ctx, at, f.client, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {Callback(f.o.Root)},
		"code_verifier": {a.Verifier},
	})
	if err != nil {
		return l, err
	}
	l = login{
		Client:   a.Request.Client,
		ID:       a.Request.ID,
		Resource: a.Request.Resource,
		Scopes:   f.grantedBy(a.Request.Scopes, t),
		Refresh:  t.Refresh,
		Nonce:    a.Nonce,
		Keyed:    a.Request.Keyed,
	}
	return l, f.identify(ctx, at, &l, t, a.Nonce)
}

// grantedBy returns the wanted scopes that the provider granted. Without ScopePrefix that is all of them. If the
// provider's answer has no scope, it is none.
func (f *Front) grantedBy(wanted []string, t *discovery.Token) (all []string) {
	switch {
	case f.o.ScopePrefix == "":
		return wanted
	case t.Scopes == nil: // the provider may not support scopes, so it is not safe to grant any
		f.o.Log.Warn("the provider's answer has no scope, which scope_prefix needs: clients get no scopes", "issuer", f.o.Provider)
	}
	for _, s := range wanted {
		if slices.Contains(t.Scopes, f.o.ScopePrefix+s) {
			all = append(all, s)
		}
	}
	return all
}

// protocol are claims of an ID token that describe the token, not the user.
var protocol = []string{"iss", "aud", "exp", "iat", "nbf", "jti", "nonce", "azp", "at_hash", "c_hash", "s_hash", "client_id", "scope", "scp", "token_use", "typ", "cnf"}

// maxClaims bounds the claims about a user, in bytes, since each request of the client carries them.
const maxClaims = 4 << 10

var errOtherUser = errors.New("the provider's ID token now names another user")

// identify reads the ID token of a login, the first or a newer one of the same user, and what userinfo adds.
func (f *Front) identify(ctx context.Context, at *discovery.Issuer, l *login, t *discovery.Token, nonce string) error {
	if t.ID == "" {
		return errors.New("the provider's answer has no ID token: it must support OpenID Connect")
	}
	claims, err := f.o.Bridge.Identify(ctx, t.ID, f.client.ID, nonce)
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
	if err := f.addUserinfo(ctx, at, t.Access, claims, user); err != nil {
		return err
	}
	text, err := json.Marshal(user)
	if err != nil {
		return err
	}
	if len(text) > maxClaims {
		return fmt.Errorf("there are %d bytes of claims about the user, more than 4096: make the provider send fewer claims or groups", len(text))
	}
	l.Subject, l.User, l.UserAt = subject, text, time.Now().UnixMilli()
	return nil
}

// addUserinfo adds to user the claims that access rules name and the ID token lacks. Many providers have groups, names
// and addresses only in userinfo (OpenID Connect Core §5.4). If the provider refuses the request, there are no more
// claims. Other failures may hide a claim that restricts the user, so they are errors.
func (f *Front) addUserinfo(ctx context.Context, at *discovery.Issuer, access string, claims gjson.Result, user map[string]json.RawMessage) error {
	var missing []string
	for _, name := range f.o.Claims {
		if !slices.Contains(protocol, name) && !token.At(claims, name).Exists() {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	log := f.o.Log.With("issuer", f.o.Provider, "sub", claims.Get("sub").Str)
	if at.Userinfo == "" {
		log.Info("the ID token lacks claims that access rules name, and the provider has no userinfo_endpoint", "claims", missing)
		return nil
	}
	info, err := f.ask.Userinfo(ctx, at, access, claims.Get("sub").Str)
	refused, _ := errors.AsType[*discovery.Error](err)
	switch {
	case refused.Final():
		log.Warn("the ID token lacks claims that access rules name, and userinfo refuses the bridge", "claims", missing, "err", err)
		return nil
	case err != nil:
		return err
	}
	for _, name := range missing {
		if v := token.At(info, name); v.Exists() {
			user[name] = json.RawMessage(v.Raw) // a rule finds the claim by its whole name, even if it has dots
		}
	}
	return nil
}
