// Package login signs in at servers with the help of a person: in a browser, by an
// authorization code with PKCE. What comes of it is kept, and shared by all processes of
// the user on this machine.
package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/find"
	"github.com/mcp-bridge/bridge/internal/oauth/grant"
	"github.com/mcp-bridge/bridge/internal/pause"
)

const (
	// margin is how long before its end a token is renewed, or a fifth of its life if that
	// is less.
	margin = time.Minute
	// Limit is how long a sign-in waits for the person.
	Limit    = 5 * time.Minute
	maxPause = 30 * time.Second
	// ending is how long Close waits for a token that was asked for: the one that renews it
	// may be used up by then, and the new one is lost if nobody hears the answer.
	ending = 8 * time.Second
	// strangeAfter is how many renewals in a row find nobody who answers before the metadata
	// is read again.
	strangeAfter = 2
	// widenings is how often the scopes of one request are widened.
	widenings = 2
)

var (
	// newFor is how long a token is new: one that is refused then is renewed once at most.
	newFor = 30 * time.Second
	// patience is how long a request waits for a sign-in: clients give up after a minute.
	patience = 50 * time.Second
	// After a token could not be renewed it is tried again no sooner than firstPause, twice
	// as long each time, up to maxPause.
	firstPause = time.Second
)

// Options are what a person's tokens for a server are made with.
type Options struct {
	oauth.Options
	Store *Store
	// Ask shows an address to the person, who has to open it in a browser; nil means that
	// nobody is here.
	Ask func(address string)
	// Command is what a person is told to run where nobody is here.
	Command string
}

// Person gets tokens for one server with the help of a person. The first request goes out
// without a token, unless there is a login: whether one is needed is the server's to say
// (I-200).
type Person struct {
	o    Options
	key  string
	find *find.Finder
	ask  *grant.Asker
	life end // when Close begins
	last end // when Close waits no longer
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the rest
	closed   bool
	login    *Login // what is known of it; nil for none
	unkept   error  // why it could not be written; nil if it was
	said     bool   // the log has that all callers act as its account
	work     *work  // that is under way; nil if none is
	renewals rest   // after renewals that came to nothing, for a reason that passes
	signIns  rest   // after sign-ins
}

// end is a context and what ends it.
type end struct {
	context.Context
	stop context.CancelFunc
}

func newEnd() (e end) {
	e.Context, e.stop = context.WithCancel(context.Background())
	return e
}

// rest is a pause after something that came to nothing.
type rest struct {
	fails   int // in a row
	until   time.Time
	failure error // why it came to nothing
}

// over reports whether to try again.
func (r *rest) over() bool { return !time.Now().Before(r.until) }

func (r *rest) begin(failure error) {
	r.fails++
	r.until, r.failure = time.Now().Add(pause.Grown(firstPause, maxPause, r.fails)), failure
}

// work is a renewal or a sign-in, for all who wait for it.
type work struct {
	done    chan struct{} // closed when err is there
	err     error
	renews  bool // it renews a token
	mu      sync.Mutex
	address string // that the person has to open; empty if that is not known yet
}

// New makes what gets a person's tokens. Close ends it.
func New(o Options) *Person {
	p := &Person{o: o, key: Key(o.Server.String(), &o.Settings), find: find.New(o.Server, o.Transport, o.Trusted()...), ask: grant.New(o.Transport)}
	p.life, p.last = newEnd(), newEnd()
	return p
}

// NewOwn makes one with the logins of the user, in place of o.Store. Where none can be kept,
// and nobody has asked for one (Settings.Unasked), it says so in the log and returns nil.
func NewOwn(o Options) (p *Person, err error) {
	switch o.Store, err = OpenOwn(); {
	case err != nil && o.Unasked:
		o.Log.Warn("the server is used without a sign-in, even if it wants one", "err", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return New(o), nil
}

// Close ends what is under way, and waits for it. A token that was asked for has a few
// seconds to come, and is kept.
func (p *Person) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.life.stop()
	late := time.AfterFunc(ending, p.last.stop)
	defer late.Stop()
	p.wg.Wait()
	p.last.stop()
}

// token asks for a token. Once it is asked for, the end of ctx does not end it: what was
// shown for it counts once.
func (p *Person) token(ctx context.Context, l *Login, form url.Values) (*grant.Token, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return p.ask.Token(p.last, &l.Issuer, l.Client.grant(p.o.Client), form)
}

// need is what a token is wanted for.
type need struct {
	refused   string // the token that the server has refused; empty without one
	challenge find.Challenge
	widen     bool // the scopes of the challenge are missing
	signs     bool // a sign-in may come of it; otherwise only a renewal
}

// Token returns the token of the login; empty if there is none. One that is about to end
// is renewed first.
func (p *Person) Token(ctx context.Context) (string, error) {
	p.mu.Lock()
	if p.login == nil && p.work == nil {
		l, err := p.o.Store.Read(p.key)
		if err != nil && !errors.Is(err, errBroken) { // which a sign-in replaces
			p.mu.Unlock()
			return "", &oauth.Failure{Public: "its login cannot be read", Err: err, SignIn: true}
		}
		p.login = l
	}
	l := p.login
	if l != nil && !p.o.Own && !p.said {
		p.said = true
		p.o.Log.Info("all callers act as the account that has signed in at the server", "issuer", l.Issuer.Name)
	}
	if l == nil || l.Access == "" || l.good(time.Now()) {
		p.mu.Unlock()
		if l == nil {
			return "", nil
		}
		return l.Access, nil
	}
	if l.Refresh == "" {
		p.mu.Unlock()
		return "", nil // the server will say what it wants
	}
	if p.work == nil && !p.renewals.over() && !p.newer(need{refused: l.Access}) {
		err := p.renewals.failure
		p.mu.Unlock()
		return "", err
	}
	w := p.begin(need{})
	p.mu.Unlock()
	if err := p.await(ctx, w); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.login == nil {
		return "", nil
	}
	return p.login.Access, nil
}

// Refused hears of a request that the server has refused. A 401 leads to a token that is
// new, by renewal or sign-in; a 403 for the sake of a scope, to a wider one.
func (p *Person) Refused(ctx context.Context, token string, h http.Header, status, before int) (again bool, err error) {
	c, _ := find.Bearer(h)
	n := need{refused: token, challenge: c, signs: true}
	switch {
	case status == http.StatusUnauthorized && before <= widenings:
	case status == http.StatusForbidden && c.Error == "insufficient_scope" && len(c.Scopes) > 0 && before <= widenings:
		n.widen = true
	default:
		return false, nil
	}
	p.mu.Lock()
	l := p.login
	if p.o.Ask == nil && l == nil { // perhaps somebody has signed in meanwhile
		kept, err := p.o.Store.Read(p.key)
		if err != nil || kept == nil || kept.Access == "" {
			p.mu.Unlock()
			return false, nil
		}
	}
	if n.widen && l != nil && l.Access == token && contains(l.Asked, c.Scopes) {
		p.mu.Unlock()
		return false, nil // they were asked for, and not granted: to ask again changes nothing
	}
	if l.serves(n) {
		p.mu.Unlock()
		return true, nil // another has come meanwhile
	}
	if p.work == nil {
		renews := l != nil && l.Refresh != "" && !n.widen
		switch {
		case renews && !p.renewals.over() && !p.newer(n):
			defer p.mu.Unlock()
			return false, p.renewals.failure
		case !renews && !p.signIns.over() && !p.newer(n):
			defer p.mu.Unlock()
			return false, p.signIns.failure
		}
	}
	w := p.begin(n)
	p.mu.Unlock()
	if err := p.await(ctx, w); err != nil {
		return false, err
	}
	return true, nil
}

// newer reports whether somebody else has kept a login that serves the need.
func (p *Person) newer(n need) bool {
	l, err := p.o.Store.Read(p.key)
	return err == nil && l.serves(n)
}

// serves reports whether a login has another token than the refused one, with the scopes
// that are missing.
func (l *Login) serves(n need) bool {
	return l.good(time.Now()) && l.Access != n.refused && (!n.widen || contains(l.Asked, n.challenge.Scopes))
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// begin starts work, unless some is under way. The caller holds p.mu.
func (p *Person) begin(n need) *work {
	if p.work != nil {
		return p.work
	}
	w := &work{done: make(chan struct{})}
	if p.closed {
		w.err = &oauth.Failure{Public: "the bridge is stopping"}
		close(w.done)
		return w
	}
	p.work = w
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.life, Limit)
		defer cancel()
		err := p.obtain(ctx, w, n)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.work = nil
		if err != nil {
			w.err = p.told(err)
			switch {
			case w.renews:
				p.renewals.begin(w.err)
			case p.o.Ask != nil: // somebody may sign in elsewhere at any time
				p.signIns.begin(w.err)
			}
			p.o.Log.Warn("no token for the server", "err", err)
		} else {
			p.renewals, p.signIns = rest{}, rest{}
		}
		close(w.done)
	})
	return w
}

// told is what those are told who wait.
func (p *Person) told(err error) error {
	if f, ok := errors.AsType[*oauth.Failure](err); ok {
		return f
	}
	if p.o.Own {
		return &oauth.Failure{Public: "there is no token for it: " + err.Error(), SignIn: true}
	}
	return &oauth.Failure{Public: "there is no token for it", Err: err, SignIn: true}
}

// await waits for work to end, but not for longer than clients wait.
func (p *Person) await(ctx context.Context, w *work) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
	}
	w.mu.Lock()
	at := w.address
	w.mu.Unlock()
	f := &oauth.Failure{Public: "it waits for a sign-in by whoever runs the bridge: try again when that is done", SignIn: true}
	if at != "" && p.o.Own {
		f.Public = "sign in, and try again: open " + at
	}
	return f
}

// obtain gets a token that is not the refused one. Only one process on this machine does
// it at a time, and what another has got meanwhile is taken (I-253, I-254).
func (p *Person) obtain(ctx context.Context, w *work, n need) error {
	unlock, err := p.o.Store.Lock(ctx, p.key)
	if err != nil {
		return fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	l, err := p.o.Store.Read(p.key)
	switch {
	case errors.Is(err, errBroken):
		p.o.Log.Warn("a login is of no use, and is replaced", "err", err)
	case err != nil:
		return err
	}
	p.mu.Lock()
	var held *Login
	if p.unkept != nil && p.login != nil && (l == nil || !l.Obtained.After(p.login.Obtained)) {
		copied := *p.login // what is in the file is older
		held = &copied
	}
	p.mu.Unlock()
	if held != nil {
		p.keep(held) // there may be room by now
		mine := *held
		l = &mine
	}
	if l.serves(n) {
		if held == nil {
			p.take(l, nil)
		}
		return nil
	}
	var r *find.Resource
	known := false
	if n.refused != "" && l != nil && !n.widen { // the server may have moved to another issuer (I-257)
		if r, err = p.find.Resource(ctx, n.challenge.Metadata); err != nil {
			return err
		}
		known = true
		if p.left(l, r) {
			p.o.Log.Info("the server has another authorization server now", "was", l.Issuer.Name)
			l = nil
		}
	}
	if l != nil && !n.widen && n.refused != "" && l.Access == n.refused && l.fresh(time.Now()) {
		if l.Renewed || l.Refresh == "" { // another window would not help either
			return errors.New("it refuses a token that its authorization server has just given")
		}
	}
	if l != nil && l.Refresh != "" && !n.widen {
		w.renews = true
		again, err := p.renew(ctx, l)
		if err != nil && !again && p.lost(err) { // perhaps its address is another one now
			if !known {
				if r, err = p.find.Resource(ctx, n.challenge.Metadata); err != nil {
					return err
				}
				known = true
			}
			if p.left(l, r) {
				err, again = fmt.Errorf("the server has another authorization server now: it was %s", l.Issuer.Name), true
				l = nil
			} else {
				again, err = p.renewElsewhere(ctx, l, r)
			}
		}
		if err == nil || !again {
			return err
		}
		w.renews = false
		p.o.Log.Info("the login for the server has ended", "err", err)
	}
	if !n.signs {
		return nil
	}
	if p.o.Ask == nil {
		what := "its login has ended"
		if l == nil {
			what = "it wants a sign-in"
		} else if n.widen {
			what = "this needs the scopes " + strings.Join(n.challenge.Scopes, " ")
		}
		return &oauth.Failure{Public: what + ": whoever runs the bridge has to sign in", Err: fmt.Errorf("run '%s'", p.o.Command), SignIn: true}
	}
	if !known {
		if r, err = p.find.Resource(ctx, n.challenge.Metadata); err != nil {
			return err
		}
	}
	return p.signIn(ctx, w, l, r, n.challenge, n.widen)
}

// take has a login be the one that is used.
func (p *Person) take(l *Login, unkept error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.login, p.unkept = l, unkept
}

// keep writes a login before its token is used. A disk that is full costs no login: it is
// kept in memory (I-253).
func (p *Person) keep(l *Login) {
	err := p.o.Store.Write(p.key, l)
	if err != nil {
		p.o.Log.Error("the login for the server could not be kept: others will have to sign in again", "err", err)
	}
	p.take(l, err)
}

// renew gets a new token by the one that renews. again says that a sign-in has to follow.
func (p *Person) renew(ctx context.Context, was *Login) (again bool, err error) {
	l := *was
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.Refresh}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	t, err := p.token(ctx, &l, form)
	switch code := grant.Refused(err); {
	case err == nil:
		l.filled(t, l.Asked)
		l.Renewed = true
		p.keep(&l)
		return false, nil
	case code == "invalid_client" && !l.Client.Registered:
		return false, &oauth.Failure{Public: "its authorization server refuses the client that is configured", Err: err, SignIn: true}
	case code == "invalid_client":
		l.Client = Client{}
		fallthrough
	case code == "invalid_grant": // the login has ended; the client is as good as before (I-256)
		l.end()
		p.keep(&l)
		*was = l
		return true, err
	default: // no other answer says anything about the token that renews
		return false, &oauth.Failure{Public: "its token could not be renewed", Err: err}
	}
}

// lost reports whether a renewal has failed as if the authorization server had gone: what
// answers is none, or nothing answers time and again.
func (p *Person) lost(err error) bool {
	if e, ok := errors.AsType[*grant.Error](err); ok {
		return e.Strange()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewals.fails >= strangeAfter
}

// left reports whether the server names authorization servers, but not that of the login
// (I-257).
func (p *Person) left(l *Login, r *find.Resource) bool {
	return p.o.Issuer == "" && r != nil && !slices.ContainsFunc(r.Issuers, func(name string) bool { return same(name, l.Issuer.Name) })
}

// renewElsewhere renews at the address that the authorization server of the login has now.
func (p *Person) renewElsewhere(ctx context.Context, l *Login, r *find.Resource) (again bool, err error) {
	at, err := p.issuer(ctx, l, r)
	if err == nil && (!same(at.Name, l.Issuer.Name) || at.Token == l.Issuer.Token) {
		err = errors.New("its authorization server does not answer as one, and its metadata names no other address")
	}
	if err != nil {
		return false, &oauth.Failure{Public: "its token could not be renewed", Err: err}
	}
	p.o.Log.Info("the authorization server has another address for tokens now", "issuer", at.Name)
	l.Issuer = *at
	return p.renew(ctx, l)
}

// filled puts a token into a login.
func (l *Login) filled(t *grant.Token, asked []string) {
	l.Access, l.Obtained, l.Until, l.Asked = t.Access, time.Now(), time.Time{}, asked
	if t.Refresh != "" {
		l.Refresh = t.Refresh
	}
	if t.Lives > 0 {
		l.Until = l.Obtained.Add(t.Lives)
	}
	if t.Scopes != nil {
		l.Granted = t.Scopes
	} else if l.Granted == nil {
		l.Granted = asked
	}
}

// signIn has the person sign in. was is the login before, or nil; r the metadata of the
// server, or nil.
func (p *Person) signIn(ctx context.Context, w *work, was *Login, r *find.Resource, c find.Challenge, widen bool) error {
	at, err := p.issuer(ctx, was, r)
	if err != nil {
		return err
	}
	if was != nil && was.Issuer.Name != at.Name {
		was = nil // what one issuer has given is never shown to another (I-209)
	}
	l := &Login{Server: p.find.Server(), Issuer: *at, Resource: p.resource(r)}
	client, back, err := p.client(ctx, at, was)
	if err != nil {
		return err
	}
	l.Client = client
	scopes := p.scopes(at, was, r, c, widen)
	verifier, state := rand.Text()+rand.Text(), rand.Text()+rand.Text()
	address, err := p.address(l, scopes, verifier, state)
	if err != nil {
		_ = back.listener.Close()
		return err
	}
	w.mu.Lock()
	w.address = address
	w.mu.Unlock()
	p.o.Ask(address)
	code, err := back.await(ctx, state, at)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("nobody has signed in within %d minutes", int(Limit.Minutes()))
		}
		return err
	}
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {l.Client.Redirect}, "code_verifier": {verifier}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	t, err := p.token(ctx, l, form)
	if err != nil {
		if grant.Refused(err) == "invalid_client" && l.Client.Registered {
			l.Client = Client{} // it is registered anew the next time
			p.keep(l)
		}
		return err
	}
	l.filled(t, scopes)
	p.keep(l)
	p.o.Log.Info("signed in", "issuer", at.Name)
	return nil
}

// issuer returns the authorization server: that of the settings, or one that the server
// names; one of an earlier login first (I-204).
func (p *Person) issuer(ctx context.Context, was *Login, r *find.Resource) (*find.Issuer, error) {
	name := p.o.Issuer
	switch {
	case name != "":
	case r != nil:
		name = r.Issuers[0]
		if was != nil {
			if i := slices.IndexFunc(r.Issuers, func(name string) bool { return same(name, was.Issuer.Name) }); i >= 0 {
				name = r.Issuers[i]
			}
		}
	default:
		name = p.find.Origin()
	}
	at, err := p.find.Issuer(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case at == nil && r == nil && p.o.Issuer == "":
		return p.find.Assumed(), nil
	case at == nil:
		return nil, fmt.Errorf("the authorization server %s has no metadata", name)
	case at.Authorization == "":
		return nil, fmt.Errorf("the authorization server %s signs nobody in: it has no authorization_endpoint", name)
	case !slices.Contains(at.Challenges, "S256") && p.o.PKCE != oauth.PKCEAssume: // (I-208)
		return nil, fmt.Errorf("the authorization server %s does not say that it supports PKCE with S256: if it does all the same, set pkce: assume", name)
	}
	return at, nil
}

// same reports whether two names are of one issuer: a slash at the end makes no other (I-206).
func same(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

func (p *Person) resource(r *find.Resource) string {
	switch {
	case p.o.Resource == oauth.ResourceOff:
		return ""
	case p.o.Resource != "":
		return p.o.Resource
	case r != nil:
		return r.Name
	}
	return p.find.Server()
}

// scopes returns what is asked for: of the settings, else of the challenge, else of the
// server's metadata, else nothing. Widening adds to what was asked for before (I-211, I-212).
func (p *Person) scopes(at *find.Issuer, was *Login, r *find.Resource, c find.Challenge, widen bool) []string {
	var all []string
	switch {
	case widen:
		if was != nil {
			all = append(all, was.Asked...)
		}
		all = append(append(all, p.o.Scopes...), c.Scopes...)
	case len(p.o.Scopes) > 0:
		all = append(all, p.o.Scopes...)
	case len(c.Scopes) > 0:
		all = append(all, c.Scopes...)
	case r != nil:
		all = append(all, r.Scopes...)
	}
	if slices.Contains(at.Scopes, "offline_access") {
		all = append(all, "offline_access")
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s string) bool {
		twice := seen[s]
		seen[s] = true
		return twice
	})
}

// address makes the address of the authorization request.
func (p *Person) address(l *Login, scopes []string, verifier, state string) (string, error) {
	u, err := p.find.Address(l.Issuer.Authorization)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": l.Client.ID, "redirect_uri": l.Client.Redirect, "state": state,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
		"resource": l.Resource, "scope": strings.Join(scopes, " "),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// SignIn signs in now, whether it is needed or not.
func (p *Person) SignIn(ctx context.Context) (*Login, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	n := need{signs: true}
	if h, err := p.probe(ctx); err != nil {
		return nil, err
	} else if c, ok := find.Bearer(h); ok {
		n.challenge = c
	}
	unlock, err := p.o.Store.Lock(ctx, p.key)
	if err != nil {
		return nil, fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	was, err := p.o.Store.Read(p.key)
	if err != nil && !errors.Is(err, errBroken) {
		return nil, err
	}
	r, err := p.find.Resource(ctx, n.challenge.Metadata)
	if err != nil {
		return nil, err
	}
	if err := p.signIn(ctx, &work{}, was, r, n.challenge, false); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unkept != nil {
		return nil, fmt.Errorf("you have signed in, but the login could not be kept: %w", p.unkept)
	}
	return p.login, nil
}

// probe asks the server for nothing in particular, to hear what it wants.
func (p *Person) probe(ctx context.Context) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, find.Limit)
	defer cancel()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.o.Server.String(), strings.NewReader(ping))
	if err != nil {
		return nil, errors.New("the address of the server is not a URL")
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"mcp-bridge"}}
	res, err := p.o.Transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("the server cannot be reached: %w", find.Reason(err))
	}
	_ = res.Body.Close()
	return res.Header, nil
}

// SignOut takes the tokens of a login back where the authorization server can do that
// (RFC 7009), and forgets it in any case (I-258). o are the settings, or nil: their client is
// shown to their issuer only. The error says whether the login is still there.
func SignOut(ctx context.Context, s *Store, key string, transport http.RoundTripper, o *oauth.Settings) error {
	unlock, err := s.Lock(ctx, key)
	if err != nil {
		return fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	l, err := s.Read(key)
	if err == nil && l != nil && l.Issuer.Revocation != "" && cmp.Or(l.Refresh, l.Access) != "" {
		var client *oauth.Client
		if o != nil && o.Client != nil && o.Client.ID == l.Client.ID && same(o.Issuer, l.Issuer.Name) {
			client = o.Client
		}
		form := url.Values{"token": {cmp.Or(l.Refresh, l.Access)}}
		if _, err = grant.New(transport).Send(ctx, &l.Issuer, l.Issuer.Revocation, l.Client.grant(client), form); err != nil {
			err = fmt.Errorf("the tokens are forgotten here, but could not be taken back: %w", err)
		}
	} else if err != nil {
		err = fmt.Errorf("the login is removed, but its tokens could not be taken back: %w", err)
	}
	if removed := s.Remove(key); removed != nil {
		return fmt.Errorf("the login cannot be removed: %w", removed)
	}
	return err
}
