// Package introspect asks an identity provider about tokens that only it can read
// (RFC 7662).
package introspect

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

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

const (
	maxAnswer = 1 << 20
	// placeKept is how long it is believed where the metadata of the issuer says that
	// the endpoint is.
	placeKept = time.Hour
	// maxAsked bounds the requests that are under way.
	maxAsked = 64
)

// ErrUnavailable: there was no answer, or none that says anything of the token.
var ErrUnavailable = errors.New("the issuer could not be asked about the token")

// Options say whom to ask.
type Options struct {
	Issuer string
	// URL is where to ask. Empty: where the metadata of the issuer says.
	URL string
	// ID and Secret are the bridge's own at the issuer. They are sent in the header
	// Authorization, or with InBody in the body.
	ID, Secret string
	InBody     bool
	// Metadata fetches the metadata of the issuer.
	Metadata func(context.Context) (*jwks.Metadata, error)
	Client   *http.Client // see jwks.Client
	Log      *slog.Logger
}

// Endpoint is where an issuer answers questions about its tokens. Its methods may be
// called concurrently.
type Endpoint struct {
	o     Options
	slots chan struct{}

	mu     sync.Mutex // guards the rest; it is not held while something is fetched
	place  string     // what the metadata has said
	until  time.Time  // and how long that is believed
	fault  string     // why the last question had no answer
	asked  uint64
	failed uint64
}

// New makes an endpoint. It asks nothing.
func New(o Options) *Endpoint {
	return &Endpoint{o: o, slots: make(chan struct{}, maxAsked)}
}

// Ask returns what the issuer says of a token: the text of its answer, whatever that is.
// The error is ErrUnavailable. It takes as long as ctx lets it.
func (e *Endpoint) Ask(ctx context.Context, raw string) ([]byte, error) {
	select {
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
	if e.o.InBody {
		form.Set("client_id", e.o.ID)
		form.Set("client_secret", e.o.Secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, place, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("its address is no URL")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if !e.o.InBody { // encoded as RFC 6749, section 2.3.1 has it
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

// find returns where to ask.
func (e *Endpoint) find(ctx context.Context) (string, error) {
	if e.o.URL != "" {
		return e.o.URL, nil
	}
	e.mu.Lock()
	place, until := e.place, e.until
	e.mu.Unlock()
	if time.Now().Before(until) {
		return place, nil
	}
	m, err := e.o.Metadata(ctx)
	if err != nil {
		if place != "" {
			return place, nil
		}
		return "", err
	}
	if m.Introspection == "" {
		return "", errors.New("the metadata of the issuer names no introspection_endpoint: set url under introspection")
	}
	if err := jwks.Safe(m.Introspection); err != nil {
		return "", fmt.Errorf("the metadata of the issuer: introspection_endpoint %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.place, e.until = m.Introspection, time.Now().Add(placeKept)
	return e.place, nil
}

// say notes how a question went, and logs that when it has changed.
func (e *Endpoint) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	e.mu.Lock()
	was := e.fault
	e.fault = text
	e.asked++
	if err != nil {
		e.failed++
	}
	e.mu.Unlock()
	switch log := e.o.Log.With("issuer", e.o.Issuer); {
	case (text == "") == (was == ""):
	case text != "":
		log.Warn("an issuer cannot be asked about tokens", "err", text)
	default:
		log.Info("an issuer can be asked about tokens again")
	}
}

// State is how an endpoint fares.
type State struct {
	Fault         string // why the last question had no answer; for operators
	Asked, Failed uint64 // questions
}

// State returns how the endpoint fares.
func (e *Endpoint) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return State{e.fault, e.asked, e.failed}
}
