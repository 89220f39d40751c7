// Package login signs in at servers with the help of a person: in a browser, by an
// authorization code with PKCE. What comes of it is kept, and shared by all processes of
// the user on this machine.
package login

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"

	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
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
	// Typed, if not nil, has the lines that the person types: the address at which a browser
	// on another machine has ended may be among them.
	Typed <-chan string
	// Device, if not nil, has the person sign in on any device (RFC 8628): it shows the address
	// to open there and the code to enter, and an address that has both or is empty.
	Device func(address, code, both string)
	// Command is what a person is told to run where nobody is here.
	Command string
}

// Person gets tokens for one server with the help of a person. The first request goes out
// without a token, unless there is a login: whether one is needed is the server's to say
// (I-200).
type Person struct {
	o    Options
	key  string
	find *discovery.Finder
	ask  *discovery.Asker
	life end // when Close begins
	last end // when Close waits no longer
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the rest
	closed   bool
	login    *Login // what is known of it; nil for none
	unkept   error  // why it could not be written; nil if it was
	over     string // the token that is in the file then
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
	r.until, r.failure = time.Now().Add(backoff.Grown(firstPause, maxPause, r.fails)), failure
}

// work is a renewal or a sign-in, for all who wait for it.
type work struct {
	done    chan struct{} // closed when err is there
	err     error
	renews  bool // it renews a token
	insists bool // the person has asked for the sign-in
	mu      sync.Mutex
	address string // that the person has to open; empty if that is not known yet
}

// New makes what gets a person's tokens. Close ends it.
func New(o Options) *Person {
	p := &Person{o: o, key: Key(o.Server.String(), &o.Settings), find: discovery.NewFinder(o.Server, o.Transport, o.Trusted()...), ask: discovery.NewAsker(o.Transport)}
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
func (p *Person) token(ctx context.Context, l *Login, form url.Values) (*discovery.Token, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return p.ask.Token(p.last, &l.Issuer, l.Client.grant(p.o.Client), form)
}

// need is what a token is wanted for.
type need struct {
	refused   string // the token that the server has refused; empty without one
	challenge discovery.Challenge
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
	c, _ := discovery.Bearer(h)
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
	if p.alone() && l == nil { // perhaps somebody has signed in meanwhile
		kept, err := p.o.Store.Read(p.key)
		if err != nil || kept == nil || kept.Access == "" {
			p.mu.Unlock()
			switch {
			case status != http.StatusUnauthorized, p.o.Unasked && c.Metadata == "": // perhaps it wants another credential
				return false, nil
			case err != nil:
				return false, p.unsigned("the login that is kept for it cannot be read")
			}
			return false, p.unsigned("it wants a token")
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
		ctx, cancel := context.WithTimeout(p.life, p.limit())
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
			case !p.alone(): // somebody may sign in elsewhere at any time
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

// alone reports whether nobody is here who could sign in.
func (p *Person) alone() bool { return p.o.Ask == nil && p.o.Device == nil }

// limit is how long a sign-in may take.
func (p *Person) limit() time.Duration {
	if p.o.Device != nil {
		return deviceLimit
	}
	return Limit
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

// await waits for work to end, but not for longer than clients wait. Limits that are about the
// server stand still: it has not got the request (I-212).
func (p *Person) await(ctx context.Context, w *work) error {
	defer deadline.Stand(ctx)()
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
