package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/logs"
)

const (
	maxAnswer = 1 << 20
	// placeKept is how long it is believed where the metadata of the issuer says that
	// the endpoint is.
	placeKept = time.Hour
	// findLimit is how long it may take to find out where that is, lostKept how long it
	// is known that it was not found, and placeStays how long the former place counts
	// then before it is looked for again.
	findLimit  = 2 * time.Second
	lostKept   = 5 * time.Second
	placeStays = time.Minute
	// maxAsked bounds the requests that are under way, and maxSpare those beyond that are
	// about tokens that were good: whoever makes tokens up does not keep these waiting.
	maxAsked = 48
	maxSpare = 16
	// sayEvery is how often it is logged that something is wrong.
	sayEvery = time.Minute
)

// ErrUnavailable: there was no answer, or none that says anything of the token.
var ErrUnavailable = errors.New("the issuer could not be asked about the token")

// EndpointOptions say whom to ask.
type EndpointOptions struct {
	Issuer string
	// URL is where to ask. Empty: where the metadata of the issuer says.
	URL string
	// ID and Secret are the bridge's own at the issuer. They are sent in the header
	// Authorization, or with InBody in the body.
	ID, Secret string
	InBody     bool
	Key        assertion.Key // that signs, in place of Secret
	// Metadata fetches the metadata of the issuer.
	Metadata func(context.Context) (*jwks.Metadata, error)
	Client   *http.Client // see jwks.Client
	Log      *slog.Logger
}

// Endpoint is where an issuer answers questions about its tokens. Its methods may be
// called concurrently.
type Endpoint struct {
	o            EndpointOptions
	slots, spare chan struct{}

	mu     sync.Mutex    // guards the rest; it is not held while something is fetched
	place  string        // what the metadata has said
	lost   error         // or why it has not
	until  time.Time     // and how long that is believed
	seeks  chan struct{} // closed when that is known again; nil when nobody looks
	fault  string        // why the last question had no answer
	warned bool          // that was logged
	lines  logs.Limiter  // about that
	asked  uint64
	failed uint64
}

// NewEndpoint makes an endpoint. It asks nothing.
func NewEndpoint(o EndpointOptions) *Endpoint {
	return &Endpoint{o: o, slots: make(chan struct{}, maxAsked), spare: make(chan struct{}, maxSpare)}
}

// Ask returns what the issuer says of a token: the text of its answer, whatever that is.
// The error is ErrUnavailable. It takes as long as ctx lets it. good says that the token was
// good when it was asked about before.
func (e *Endpoint) Ask(ctx context.Context, raw string, good bool) ([]byte, error) {
	var spare chan struct{}
	if good {
		spare = e.spare
	}
	select {
	case spare <- struct{}{}:
		defer func() { <-spare }()
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-ctx.Done():
		e.say(errors.New("there are too many questions under way: it is too slow"))
		return nil, ErrUnavailable
	}
	answer, err := e.ask(ctx, raw)
	e.say(err)
	if err != nil {
		return nil, ErrUnavailable
	}
	return answer, nil
}

func (e *Endpoint) ask(ctx context.Context, raw string) ([]byte, error) {
	place, err := e.find(ctx)
	if err != nil {
		return nil, err
	}
	form := url.Values{"token": {raw}, "token_type_hint": {"access_token"}}
	switch {
	case e.o.Key.File != "":
		if err := e.o.Key.Show(form, e.o.ID, e.o.Issuer, nil); err != nil {
			return nil, err
		}
	case e.o.InBody:
		form.Set("client_id", e.o.ID)
		form.Set("client_secret", e.o.Secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, place, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("its address is no URL")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if !e.o.InBody && e.o.Key.File == "" { // encoded as RFC 6749, section 2.3.1 has it
		r.SetBasicAuth(url.QueryEscape(e.o.ID), url.QueryEscape(e.o.Secret))
	}
	a, err := e.o.Client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	defer a.Body.Close()
	switch a.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s: the answer is %s: are the id and the secret of introspection right, and may this client ask?", place, a.Status)
	default:
		return nil, fmt.Errorf("%s: the answer is %s", place, a.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", place, err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%s: the answer is larger than 1 MiB", place)
	}
	return answer, nil
}

// find returns where to ask. One looks for all. As long as nothing else is known, the former
// place counts.
func (e *Endpoint) find(ctx context.Context) (string, error) {
	if e.o.URL != "" {
		return e.o.URL, nil
	}
	e.mu.Lock()
	seeks := e.seeks
	switch {
	case time.Now().Before(e.until) || seeks != nil && e.place != "":
		defer e.mu.Unlock()
		return e.place, e.lost
	case seeks == nil:
		e.seeks = make(chan struct{})
		e.mu.Unlock()
		e.look(ctx)
	default:
		e.mu.Unlock()
		select {
		case <-seeks:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.place, e.lost
}

// look looks where to ask, for all who wait for that.
func (e *Endpoint) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findLimit)
	defer cancel()
	m, err := e.o.Metadata(ctx)
	switch {
	case err != nil:
	case m.Introspection == "":
		err = errors.New("the metadata of the issuer names no introspection_endpoint: set url under introspection")
	default:
		if err = jwks.Safe(m.Introspection); err != nil {
			err = fmt.Errorf("the metadata of the issuer: introspection_endpoint %w", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		e.place, e.lost, e.until = m.Introspection, nil, now.Add(placeKept)
	case e.place != "":
		e.until = now.Add(placeStays)
	default:
		e.lost, e.until = err, now.Add(lostKept)
	}
	close(e.seeks)
	e.seeks = nil
}

// say notes how a question went, and logs that when it has changed; not each time if that
// goes to and fro.
func (e *Endpoint) say(err error) {
	e.mu.Lock()
	e.asked++
	e.fault = ""
	was := e.warned
	if e.warned = err != nil && e.warned; err != nil {
		e.fault = err.Error()
		e.failed++
		if !e.warned {
			_, e.warned = e.lines.Due(sayEvery)
		}
	}
	warned := e.warned
	e.mu.Unlock()
	switch log := e.o.Log.With("issuer", e.o.Issuer); {
	case warned && !was:
		log.Warn("an issuer cannot be asked about tokens", "err", err)
	case was && !warned:
		log.Info("an issuer can be asked about tokens again")
	}
}

// IntrospectionState is the state of an endpoint.
type IntrospectionState struct {
	Fault         string // why the last question had no answer; for operators
	Asked, Failed uint64 // questions
}

// State returns the state of the endpoint.
func (e *Endpoint) State() IntrospectionState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return IntrospectionState{e.fault, e.asked, e.failed}
}
