// Package jwks holds the public keys of an issuer of tokens. It fetches and refreshes them, and bounds
// the fetches that strangers can cause.
//
// A new key of the issuer works at once: an unknown key id causes a fetch, at most once in ten seconds.
// All requests that need it share it, and no other request waits.
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
	// ErrUnknown means that the issuer has no such key.
	ErrUnknown = errors.New("the issuer has no such key")
	// ErrUnavailable means that the keys could not be fetched. A token with an unknown key cannot be checked then.
	ErrUnavailable = errors.New("the keys of the issuer could not be fetched")
)

const (
	againEvery = 10 * time.Second // minimum time between two fetches for unknown keys
	retryFirst = time.Second      // pause after the first failed fetch
	retryMost  = 30 * time.Second // longest pause after failed fetches
	maxAge     = 24 * time.Hour   // how long a set may be used that cannot be refreshed
	maxTried   = 8                // keys that are tried for a token without kid
	waitLimit  = 2 * time.Second  // how long a request waits for a fetch
)

// Options are the settings of a Set.
type Options struct {
	Issuer string
	// From is the URL or the file of the key set. Empty means the jwks_uri in the issuer's metadata.
	From string
	// Text is the key set itself, in place of From.
	Text   []byte
	Client *http.Client // see Client
	Log    *slog.Logger
}

// Set holds the keys of one issuer, which Run fetches. The other methods may be called concurrently, even before and
// after Run.
type Set struct {
	o        Options
	current  atomic.Pointer[keys] // nil if there are none
	requests chan struct{}        // holds an element while a fetch is requested
	stopped  chan struct{}        // closed when Run returns
	fetched  atomic.Uint64
	failed   atomic.Uint64

	mu        sync.Mutex // guards the rest
	flight    chan struct{}
	next      time.Time // from then on an unknown key may cause a fetch
	lastFault string    // why the last fetch failed, or why some keys are not used
	failing   bool      // the last fetch failed
}

// keys are the keys of one fetch.
type keys struct {
	all []*Key
	at  time.Time
}

// New returns a Set without keys.
func New(o Options) *Set {
	return &Set{
		o:        o,
		requests: make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		flight:   make(chan struct{}),
	}
}

// Run fetches and refreshes the keys until ctx ends. It must be called only once.
func (s *Set) Run(ctx context.Context) {
	defer close(s.stopped)
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
			s.setInFlight()
		case <-s.requests:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Try fetches the keys once, to check a configuration. It returns the number of usable keys, and the faults of the
// other keys.
func (s *Set) Try(ctx context.Context) (usable int, skipped []error, err error) {
	data, _, err := s.set(ctx)
	if err != nil {
		return 0, nil, err
	}
	all, skipped, err := parse(data)
	return len(all), skipped, err
}

// setInFlight records that a fetch is in flight.
func (s *Set) setInFlight() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil {
		s.flight = make(chan struct{})
	}
	select {
	case <-s.requests: // this fetch also serves a request for a fetch
	default:
	}
}

// fetch fetches the key set, and returns the time until the next fetch is due.
func (s *Set) fetch(ctx context.Context) (next time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*fetchLimit) // for the metadata and the key set
	defer cancel()
	var all []*Key
	var skipped []error
	data, next, err := s.set(limited)
	if err == nil {
		all, skipped, err = parse(data)
	}
	if ctx.Err() == nil {
		s.fetched.Add(1)
		s.logResult(err, skipped)
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

// tooOld reports whether the set is too old to be used.
func (s *Set) tooOld() bool {
	now := s.current.Load()
	return now != nil && time.Since(now.at) > maxAge
}

// publish replaces the keys. Tokens signed by keys that are gone are no longer valid (I-023).
func (s *Set) publish(all []*Key) {
	old := s.current.Load()
	if old == nil {
		old = &keys{}
	}
	stays := map[*Key]bool{}
	for i, k := range all {
		for _, before := range old.all {
			if before.raw == k.raw {
				all[i] = before
				stays[before] = true
				break
			}
		}
	}
	if all == nil {
		s.current.Store(nil)
	} else {
		s.current.Store(&keys{all, time.Now()})
	}
	for _, k := range old.all {
		if !stays[k] {
			k.withdrawn.Store(true)
			s.o.Log.Info("an issuer has withdrawn a key: tokens signed by it are refused", "issuer", s.o.Issuer, "kid", fmt.Sprintf("%.100q", k.ID))
		}
	}
}

// logResult logs the result of a fetch if it differs from the last one.
func (s *Set) logResult(err error, skipped []error) {
	text := ""
	if err != nil {
		text = err.Error()
	} else if len(skipped) > 0 {
		text = errors.Join(skipped...).Error()
	}
	s.mu.Lock()
	before := s.lastFault
	s.lastFault, s.failing = text, err != nil
	s.mu.Unlock()
	switch log := s.o.Log.With("issuer", s.o.Issuer); {
	case text == before:
	case err != nil:
		log.Warn("the keys of an issuer could not be fetched", "err", text)
	case text != "":
		log.Warn("an issuer has keys that are not used", "err", text)
	default:
		log.Info("the keys of an issuer can be used again")
	}
}

// Find returns the keys that may have made a signature: those with that id, or, unless named, those that fit the
// algorithm. The error is ErrUnknown, ErrUnavailable or that of ctx.
func (s *Set) Find(ctx context.Context, id string, named bool, alg string) ([]*Key, error) {
	if now := s.current.Load(); now != nil {
		if found, some := now.find(id, named, alg); some {
			return found, nil
		}
	}
	wait, first := s.requestFetch()
	switch {
	case wait == nil:
		return nil, s.unknown()
	case s.current.Load() == nil && s.lastFailed(): // Run retries by itself
		return nil, ErrUnavailable
	}
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	select {
	case <-wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.stopped:
		return nil, ErrUnavailable
	case <-limit.C:
		return nil, ErrUnavailable
	}
	now := s.current.Load()
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

// unknown returns the error about a key that is not in the set. After a failed fetch, the issuer may have a new key.
func (s *Set) unknown() error {
	if s.lastFailed() {
		return ErrUnavailable
	}
	return ErrUnknown
}

// lastFailed reports whether the last fetch failed.
func (s *Set) lastFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

// requestFetch requests a fetch, or joins the fetch in flight. wait is closed when the fetch has ended. It is nil if
// the last fetch ended less than againEvery ago.
func (s *Set) requestFetch() (wait chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight, false
	}
	now := time.Now()
	if now.Before(s.next) {
		if s.current.Load() == nil { // the set has no keys to answer with
			done := make(chan struct{})
			close(done)
			return done, false
		}
		return nil, false
	}
	s.next = now.Add(againEvery)
	s.flight = make(chan struct{})
	select {
	case s.requests <- struct{}{}:
	default:
	}
	return s.flight, true
}

// find returns the keys for an algorithm. some is false if no key has that id, or none fits.
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
	Have    bool      // the set has keys
	Stale   bool      // the last fetch failed
	At      time.Time // when the keys were fetched
	Fault   string    // why the last fetch failed, or why some keys are not used; for operators
	Fetched uint64    // number of fetches
	Failed  uint64    // number of failed fetches
}

func (s *Set) State() State {
	st := State{
		Issuer:  s.o.Issuer,
		Fetched: s.fetched.Load(),
		Failed:  s.failed.Load(),
	}
	if now := s.current.Load(); now != nil {
		st.Have, st.At = true, now.at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Fault, st.Stale = s.lastFault, s.failing
	return st
}
