// Package login signs in at servers with the help of a person. The person uses a browser (an authorization code with
// PKCE) or enters a code on another device. All processes of the user on this machine share the logins.
package login

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

const (
	// renewBefore is how long before its end a token is renewed, or a fifth of the token's life if that is less.
	renewBefore = time.Minute
	// Limit is how long a sign-in waits for the person.
	Limit    = 5 * time.Minute
	maxPause = 30 * time.Second
	// closeWait is how long Close waits for a token request. The request may use up its refresh token, so the new token
	// would be lost without the answer.
	closeWait = 8 * time.Second
	// rediscoverAfter is the number of consecutive unanswered renewals after which the metadata is read again.
	rediscoverAfter = 2
	// maxWidenings bounds how many tokens with more scopes one request may get.
	maxWidenings = 2
)

var (
	// newFor is how long a token is new. A new token that is refused is renewed only once.
	newFor = 30 * time.Second
	// patience is how long a request waits for a sign-in. Clients time out after a minute.
	patience = 50 * time.Second
	// firstPause is the pause after a failed renewal. Each failure doubles the pause, up to maxPause.
	firstPause = time.Second
)

// Options are the settings and dependencies of a Person.
type Options struct {
	oauth.Options
	Store *Store
	// Ask shows an address that the person must open in a browser. If Ask is nil, no person can sign in here.
	Ask func(address string)
	// Typed, if not nil, receives the lines that the person types. A line may be the address at which a browser on
	// another machine has ended.
	Typed <-chan string
	// Device, if not nil, makes the person sign in on any device (RFC 8628). It shows the address, the code to enter
	// there, and an address that contains the code, or "".
	Device func(address, code, both string)
	// Command is the sign-in command that messages name if nobody can sign in here.
	Command string
}

// Person gets tokens for one server with the help of a person. Without a login, the first request is sent without a
// token, because the server's answer shows whether the server needs a token (I-200).
type Person struct {
	o       Options
	key     string
	find    *discovery.Finder
	ask     *discovery.Asker
	closing cancelable // ended when Close begins
	abort   cancelable // ended when Close stops waiting
	wg      sync.WaitGroup
	ready   sync.Once // makes the store ready

	mu            sync.Mutex // guards the rest
	closed        bool
	login         *Login       // the current login; nil if there is none
	unsaved       error        // the reason why the login could not be stored; nil if it was stored
	unsavedOver   string       // the token in the file if unsaved is not nil
	accountLogged bool         // it was logged that all callers use the person's account
	work          *work        // work in progress; nil if there is none
	renewals      backoffState // after renewals that failed for a temporary reason
	signIns       backoffState // after failed sign-ins
}

type cancelable struct {
	context.Context
	stop context.CancelFunc
}

func newCancelable() (c cancelable) {
	c.Context, c.stop = context.WithCancel(context.Background())
	return c
}

// backoffState is a pause after failures.
type backoffState struct {
	fails   int // consecutive failures
	until   time.Time
	failure error // the last failure
}

func (b *backoffState) due() bool { return !time.Now().Before(b.until) }

func (b *backoffState) begin(failure error) {
	b.fails++
	b.until, b.failure = time.Now().Add(backoff.Grown(firstPause, maxPause, b.fails)), failure
}

// work is a renewal or a sign-in for which callers wait.
type work struct {
	done    chan struct{} // closed when err is set
	err     error
	renews  bool // the work renews a token
	forced  bool // the person requested the sign-in
	unasked bool // the server answered a request without a token
	mu      sync.Mutex
	address string // the address to open; empty until the address is known
}

// New returns a Person. The caller closes it.
func New(o Options) *Person {
	p := &Person{
		o:    o,
		key:  Key(o.Server.String(), &o.Settings),
		find: discovery.NewFinder(o.Server, o.Transport, o.Trusted()...),
		ask:  discovery.NewAsker(o.Transport),
	}
	p.closing, p.abort = newCancelable(), newCancelable()
	return p
}

// NewOwn returns a Person with the user's own logins instead of o.Store. If logins are impossible and nobody asked for
// a login (Settings.Unasked), NewOwn logs a warning and returns nil.
func NewOwn(o Options) (p *Person, err error) {
	switch o.Store, err = OpenOwn(o.Log); {
	case err != nil && o.Unasked:
		o.Log.Warn("the bridge cannot sign in at the server, even if the server needs it", "err", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return New(o), nil
}

// Close stops all work and waits until it has stopped. A token request gets a few seconds to finish.
func (p *Person) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closing.stop()
	late := time.AfterFunc(closeWait, p.abort.stop)
	defer late.Stop()
	p.wg.Wait()
	p.abort.stop()
}

// token requests a token. The end of ctx does not cancel a request that was sent, because a code or refresh token works
// only once.
func (p *Person) token(ctx context.Context, l *Login, form url.Values) (*discovery.Token, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return p.ask.Token(p.abort, &l.Issuer, l.Client.grant(p.o.Client), form)
}

// demand is the reason why a token is needed.
type demand struct {
	refused   string // the token that the server refused; empty if there is none
	challenge discovery.Challenge
	widen     bool // the token lacks the challenge's scopes
	signs     bool // a sign-in is allowed; otherwise only a renewal
}

// Token returns the token of the login, or "" if there is none. It first renews a token that will expire soon.
func (p *Person) Token(ctx context.Context) (string, error) {
	p.ready.Do(func() { p.o.Store.ready(p.key) })
	p.mu.Lock()
	if p.login == nil && p.work == nil {
		l, err := p.o.Store.Read(p.key)
		if err != nil && !errors.Is(err, errBroken) { // a sign-in replaces a broken login
			p.mu.Unlock()
			return "", &oauth.Failure{
				Public: "the stored login for it cannot be read",
				Err:    err,
				SignIn: true,
			}
		}
		p.login = l
	}
	l := p.login
	if l != nil && !p.o.Own && !p.accountLogged {
		p.accountLogged = true
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
		return "", nil // the server will ask for a new token
	}
	if p.work == nil && !p.renewals.due() && !p.newer(demand{refused: l.Access}) {
		err := p.renewals.failure
		p.mu.Unlock()
		return "", err
	}
	w := p.begin(demand{})
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

// Refused handles a refused request. After 401, it gets a new token by renewal or sign-in. After 403 for missing
// scopes, it gets a token with more scopes.
func (p *Person) Refused(ctx context.Context, token string, h http.Header, status, before int) (again bool, err error) {
	c, _ := discovery.Bearer(h)
	d := demand{
		refused:   token,
		challenge: c,
		signs:     true,
	}
	switch {
	case status == http.StatusUnauthorized && before <= maxWidenings:
	case status == http.StatusForbidden && c.Error == "insufficient_scope" && len(c.Scopes) > 0 && before <= maxWidenings:
		d.widen = true
	default:
		return false, nil
	}
	p.mu.Lock()
	l := p.login
	if p.noPrompt() && l == nil { // a person may have signed in elsewhere meanwhile
		stored, err := p.o.Store.Read(p.key)
		if err != nil || stored == nil || stored.Access == "" {
			p.mu.Unlock()
			switch {
			case status != http.StatusUnauthorized, p.o.Unasked && c.Metadata == "": // the server may need another credential
				return false, nil
			case err != nil:
				return false, p.unsigned("the stored login for it cannot be read")
			}
			return false, p.unsigned("it needs a token")
		}
	}
	if d.widen && l != nil && l.Access == token && contains(l.Asked, c.Scopes) {
		p.mu.Unlock()
		return false, nil // the scopes were requested before and not granted, so another request would not help
	}
	if l.serves(d) {
		p.mu.Unlock()
		return true, nil // meanwhile there is another token
	}
	if p.work == nil {
		renews := l != nil && l.Refresh != "" && !d.widen
		switch {
		case renews && !p.renewals.due() && !p.newer(d):
			defer p.mu.Unlock()
			return false, p.renewals.failure
		case !renews && !p.signIns.due() && !p.newer(d):
			defer p.mu.Unlock()
			return false, p.signIns.failure
		}
	}
	w := p.begin(d)
	p.mu.Unlock()
	if err := p.await(ctx, w); err != nil {
		return false, err
	}
	return true, nil
}

// newer reports whether another process has stored a login that meets the demand.
func (p *Person) newer(d demand) bool {
	l, err := p.o.Store.Read(p.key)
	return err == nil && l.serves(d)
}

// serves reports whether the login has a token that is not the refused token and has the missing scopes.
func (l *Login) serves(d demand) bool {
	return l.good(time.Now()) && l.Access != d.refused && (!d.widen || contains(l.Asked, d.challenge.Scopes))
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// begin starts work, unless work is in progress. The caller holds p.mu.
func (p *Person) begin(d demand) *work {
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
		ctx, cancel := context.WithTimeout(p.closing, p.limit())
		defer cancel()
		err := p.obtain(ctx, w, d)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.work = nil
		if err != nil {
			w.err = p.publicError(err)
			switch {
			case w.renews:
				p.renewals.begin(w.err)
			case !p.noPrompt(): // otherwise, a person may sign in elsewhere at any time
				p.signIns.begin(w.err)
			}
			p.o.Log.Warn("the bridge got no token for the server", "err", err)
		} else {
			p.renewals, p.signIns = backoffState{}, backoffState{}
		}
		close(w.done)
	})
	return w
}

// noPrompt reports whether nobody can sign in here.
func (p *Person) noPrompt() bool { return p.o.Ask == nil && p.o.Device == nil }

// limit returns the timeout of a sign-in.
func (p *Person) limit() time.Duration {
	if p.o.Device != nil {
		return deviceLimit
	}
	return Limit
}

// publicError returns the error for the waiting callers.
func (p *Person) publicError(err error) error {
	if f, ok := errors.AsType[*oauth.Failure](err); ok {
		return f
	}
	if p.o.Own {
		return &oauth.Failure{Public: "there is no token for it: " + err.Error(), SignIn: true}
	}
	return &oauth.Failure{
		Public: "there is no token for it",
		Err:    err,
		SignIn: true,
	}
}

// await waits for work to end, but not longer than patience. Meanwhile, deadlines of the call stop, because the server
// does not have the request yet (I-212).
func (p *Person) await(ctx context.Context, w *work) error {
	defer deadline.Hold(ctx)()
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
	f := &oauth.Failure{Public: "the bridge's operator must sign in at it: try again after that", SignIn: true}
	if at != "" && p.o.Own {
		f.Public = "sign in, then try again: open " + at
	}
	return f
}
