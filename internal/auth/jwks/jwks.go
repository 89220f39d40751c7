// Package jwks keeps the public keys of an issuer of tokens: it fetches them, fetches
// them again when they may have changed, and bounds how often strangers can have it
// do so.
//
// An issuer that publishes a new key and signs with it at once is believed at once:
// a key id that is not known has the set fetched, for all who wait for it together,
// and at most once in ten seconds. Nobody else waits for that.
package jwks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Why there is no key.
var (
	// ErrUnknown: the issuer has no such key.
	ErrUnknown = errors.New("the issuer has no such key")
	// ErrUnavailable: the keys of the issuer could not be fetched, so nothing can be
	// said of a token of it whose key is not known.
	ErrUnavailable = errors.New("the keys of the issuer could not be fetched")
)

const (
	againEvery = 10 * time.Second // between two fetches for keys that are not known
	retryFirst = time.Second      // between two fetches when one has failed, at first
	retryMost  = 30 * time.Second // and later
	oldest     = 24 * time.Hour   // how long a set counts that cannot be fetched again
	maxTried   = 8                // keys for a token that does not say which
	waitLimit  = 2 * time.Second  // how long a request waits for a fetch: the issuer may hang
)

// Options say whose keys these are.
type Options struct {
	Issuer string
	// From is the URL or the file of the set. Empty: the metadata of the issuer says
	// where it is.
	From string
	// Text is the set itself, in the place of From.
	Text   []byte
	Client *http.Client // see Client
	Log    *slog.Logger
}

// Set are the keys of one issuer. Run fetches them; other methods may be called
// concurrently, also before Run and after it.
type Set struct {
	o       Options
	now     atomic.Pointer[keys] // nil as long as there is none
	ask     chan struct{}        // has a place when the set is wanted anew
	ended   chan struct{}        // closed when Run has ended
	fetched atomic.Uint64
	failed  atomic.Uint64

	mu     sync.Mutex // guards the rest
	flight chan struct{}
	next   time.Time // when a key that is not known may have the set fetched again
	fault  string    // why the last fetch failed, or what of it is not used
	stale  bool      // the last fetch failed
}

// keys are a set as it was fetched.
type keys struct {
	all []*Key
	at  time.Time
}

// New makes a set, which is empty until Run has fetched it.
func New(o Options) *Set {
	return &Set{o: o, ask: make(chan struct{}, 1), ended: make(chan struct{}), flight: make(chan struct{})}
}

// Run fetches the keys and keeps them new until ctx ends. It is called once.
func (s *Set) Run(ctx context.Context) {
	defer close(s.ended)
	pause := retryFirst
	for {
		next, err := s.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			next = pause
			pause = min(2*pause, retryMost)
		} else {
			pause = retryFirst
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
			s.begin()
		case <-s.ask:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Try fetches the keys once, for somebody who looks whether that can be done: it returns
// how many can be used, and why others cannot.
func (s *Set) Try(ctx context.Context) (usable int, skipped []error, err error) {
	data, _, err := s.set(ctx)
	if err != nil {
		return 0, nil, err
	}
	all, skipped, err := parse(data)
	return len(all), skipped, err
}

// begin notes that the set is being fetched.
func (s *Set) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil {
		s.flight = make(chan struct{})
	}
	select {
	case <-s.ask: // who has asked meanwhile waits for this one
	default:
	}
}

// fetch fetches the set, and says when that is due again.
func (s *Set) fetch(ctx context.Context) (next time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*fetchLimit) // for metadata and set
	defer cancel()
	var all []*Key
	var skipped []error
	data, next, err := s.set(limited)
	if err == nil {
		all, skipped, err = parse(data)
	}
	if ctx.Err() == nil {
		s.fetched.Add(1)
		s.say(err, skipped)
	}
	if err == nil {
		s.publish(all)
	} else if s.failed.Add(1); s.tooOld() {
		s.publish(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.flight)
	s.flight = nil
	return next, err
}

// tooOld reports whether the set is too old to count.
func (s *Set) tooOld() bool {
	now := s.now.Load()
	return now != nil && time.Since(now.at) > oldest
}

// publish has those be the keys. Tokens of a key that is not among them end (I-023).
func (s *Set) publish(all []*Key) {
	old := s.now.Load()
	if old == nil {
		old = &keys{}
	}
	stays := map[*Key]bool{}
	for i, k := range all {
		for _, had := range old.all {
			if had.raw == k.raw {
				all[i] = had
				stays[had] = true
				break
			}
		}
	}
	if all == nil {
		s.now.Store(nil)
	} else {
		s.now.Store(&keys{all, time.Now()})
	}
	for _, k := range old.all {
		if !stays[k] {
			k.gone.Store(true)
			s.o.Log.Info("an issuer has withdrawn a key: tokens signed by it no longer count", "issuer", s.o.Issuer, "kid", fmt.Sprintf("%.100q", k.ID))
		}
	}
}

// say logs how a fetch went, when that has changed.
func (s *Set) say(err error, skipped []error) {
	text := ""
	if err != nil {
		text = err.Error()
	} else if len(skipped) > 0 {
		text = errors.Join(skipped...).Error()
	}
	s.mu.Lock()
	was := s.fault
	s.fault, s.stale = text, err != nil
	s.mu.Unlock()
	switch log := s.o.Log.With("issuer", s.o.Issuer); {
	case text == was:
	case err != nil:
		log.Warn("the keys of an issuer could not be fetched", "err", text)
	case text != "":
		log.Warn("an issuer has keys that are not used", "err", text)
	default:
		log.Info("the keys of an issuer can be used again")
	}
}

// Find returns the keys that a signature may be of: those with the id, or, without one,
// all that fit the algorithm. The error is ErrUnknown or ErrUnavailable, or that of ctx.
func (s *Set) Find(ctx context.Context, id string, named bool, alg string) ([]*Key, error) {
	if now := s.now.Load(); now != nil {
		if found, some := now.find(id, named, alg); some {
			return found, nil
		}
	}
	wait, first := s.again()
	switch {
	case wait == nil:
		return nil, s.unknown()
	case s.now.Load() == nil && s.lastFailed(): // it is tried again, and there is nothing to wait for
		return nil, ErrUnavailable
	}
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	select {
	case <-wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, ErrUnavailable
	case <-limit.C:
		return nil, ErrUnavailable
	}
	now := s.now.Load()
	if now == nil {
		return nil, ErrUnavailable
	}
	if found, some := now.find(id, named, alg); some {
		return found, nil
	}
	err := s.unknown()
	if first && errors.Is(err, ErrUnknown) {
		s.o.Log.Debug("a token names a key that its issuer does not have", "issuer", s.o.Issuer)
	}
	return nil, err
}

// unknown returns why a key is not in the set: when that could not be fetched again, the
// issuer may have a new one.
func (s *Set) unknown() error {
	if s.lastFailed() {
		return ErrUnavailable
	}
	return ErrUnknown
}

// lastFailed reports whether the last fetch has failed.
func (s *Set) lastFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// again has the set fetched again, or finds that this is being done: the channel is
// closed when it is. It is nil when it was done a moment ago.
func (s *Set) again() (wait chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight, false
	}
	now := time.Now()
	if now.Before(s.next) {
		if s.now.Load() == nil { // nothing can be said of any key
			done := make(chan struct{})
			close(done)
			return done, false
		}
		return nil, false
	}
	s.next = now.Add(againEvery)
	s.flight = make(chan struct{})
	select {
	case s.ask <- struct{}{}:
	default:
	}
	return s.flight, true
}

// find returns the keys for an algorithm. some is false when there is none of that id,
// or none at all that fits.
func (k *keys) find(id string, named bool, alg string) (found []*Key, some bool) {
	for _, key := range k.all {
		if named && key.ID != id {
			continue
		}
		some = some || named
		if key.fits(alg) && len(found) < maxTried {
			found = append(found, key)
		}
	}
	return found, some || len(found) > 0
}

// State is the state of the keys of an issuer.
type State struct {
	Issuer  string
	Have    bool      // there are keys
	Stale   bool      // and could not be fetched again when it was time
	At      time.Time // when they were fetched
	Fault   string    // why the last fetch failed, or what of it is not used; for operators
	Fetched uint64    // how often they were, or were to be
	Failed  uint64    // how often that failed
}

// State returns the state of the keys.
func (s *Set) State() State {
	st := State{Issuer: s.o.Issuer, Fetched: s.fetched.Load(), Failed: s.failed.Load()}
	if now := s.now.Load(); now != nil {
		st.Have, st.At = true, now.at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Fault, st.Stale = s.fault, s.stale
	return st
}
