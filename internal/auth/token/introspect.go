package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

const (
	// addressLife is how long the endpoint's address from the metadata is used.
	addressLife = time.Hour
	// findLimit bounds a lookup of the address. findErrLife is how long a failure of the lookup counts. addressGrace is
	// how long the old address is used after a failure.
	findLimit    = 2 * time.Second
	findErrLife  = 5 * time.Second
	addressGrace = time.Minute
	// maxInFlight bounds the requests in flight. maxSpare bounds additional requests about tokens that were valid
	// before, so that made-up tokens do not delay these.
	maxInFlight = 48
	maxSpare    = 16
	// logEvery is the minimum time between two failures in the log.
	logEvery = time.Minute
)

// ErrUnavailable means that the issuer gave no answer about the token.
var ErrUnavailable = errors.New("the issuer could not be asked about the token")

// EndpointOptions are the settings of an Endpoint.
type EndpointOptions struct {
	Issuer string
	// URL is the introspection endpoint. Empty means the endpoint in the issuer's metadata.
	URL string
	// As holds the credentials of the bridge at the issuer.
	As *discovery.Client
	// Metadata fetches the metadata of the issuer.
	Metadata func(context.Context) (*discovery.Issuer, error)
	Client   *http.Client // see jwks.Client
	Log      *slog.Logger
}

// Endpoint is the introspection endpoint of an issuer. Its methods may be called concurrently.
type Endpoint struct {
	o            EndpointOptions
	slots, spare chan struct{}

	mu      sync.Mutex    // guards the rest; not held during a fetch
	found   string        // address from the metadata
	findErr error         // why there is no address
	until   time.Time     // when found or findErr ends
	lookup  chan struct{} // closed when the lookup in flight has ended; nil without one
	fault   string        // the fault of the last request
	warned  bool          // fault was logged
	limiter logs.Limiter  // limits the logged faults
	asked   uint64
	failed  uint64
}

// NewEndpoint returns an Endpoint. It sends no request.
func NewEndpoint(e EndpointOptions) *Endpoint {
	return &Endpoint{
		o:     e,
		slots: make(chan struct{}, maxInFlight),
		spare: make(chan struct{}, maxSpare),
	}
}

// Ask returns the issuer's raw answer about a token. good says that the token was valid before. ctx bounds the time.
// The error is ErrUnavailable.
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
		e.record(errors.New("it is too slow: too many requests are in flight"))
		return nil, ErrUnavailable
	}
	answer, err := e.ask(ctx, raw)
	e.record(err)
	if err != nil {
		return nil, ErrUnavailable
	}
	return answer, nil
}

func (e *Endpoint) ask(ctx context.Context, raw string) ([]byte, error) {
	address, err := e.address(ctx)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	form, err := e.o.As.Authenticate(&discovery.Issuer{Name: e.o.Issuer}, url.Values{"token": {raw}, "token_type_hint": {"access_token"}}, h)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("its address must be a URL")
	}
	r.Header = h
	a, err := e.o.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, discovery.Reason(err))
	}
	defer a.Body.Close()
	switch a.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s: the answer is %s: check id and secret of introspection, and the client's permission to introspect", address, a.Status)
	default:
		return nil, fmt.Errorf("%s: the answer is %s", address, a.Status)
	}
	answer, err := discovery.ReadAnswer(a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return answer, nil
}

// address returns the address of the endpoint. Concurrent callers share a lookup, and use the old address meanwhile.
func (e *Endpoint) address(ctx context.Context) (string, error) {
	if e.o.URL != "" {
		return e.o.URL, nil
	}
	e.mu.Lock()
	seeks := e.lookup
	switch {
	case time.Now().Before(e.until) || seeks != nil && e.found != "":
		defer e.mu.Unlock()
		return e.found, e.findErr
	case seeks == nil:
		e.lookup = make(chan struct{})
		e.mu.Unlock()
		e.lookUp(ctx)
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
	return e.found, e.findErr
}

// lookUp looks the address up, and wakes the callers that wait for the lookup.
func (e *Endpoint) lookUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findLimit)
	defer cancel()
	i, err := e.o.Metadata(ctx)
	switch {
	case err != nil:
	case i.Introspection == "":
		err = errors.New("the metadata of the issuer has no introspection_endpoint: set url under introspection")
	default:
		if err = jwks.CheckAddress(i.Introspection); err != nil {
			err = fmt.Errorf("the metadata of the issuer: introspection_endpoint %w", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		e.found, e.findErr, e.until = i.Introspection, nil, now.Add(addressLife)
	case e.found != "":
		e.until = now.Add(addressGrace)
	default:
		e.findErr, e.until = err, now.Add(findErrLife)
	}
	close(e.lookup)
	e.lookup = nil
}

// record records the result of a request, and logs changes. It does not log each change of an unstable endpoint.
func (e *Endpoint) record(err error) {
	e.mu.Lock()
	e.asked++
	e.fault = ""
	before := e.warned
	if e.warned = err != nil && e.warned; err != nil {
		e.fault = err.Error()
		e.failed++
		if !e.warned {
			_, e.warned = e.limiter.Due(logEvery)
		}
	}
	warned := e.warned
	e.mu.Unlock()
	switch log := e.o.Log.With("issuer", e.o.Issuer); {
	case warned && !before:
		log.Warn("introspection fails: tokens of the issuer cannot be checked", "err", err)
	case before && !warned:
		log.Info("introspection works again")
	}
}

// IntrospectionState is the state of an endpoint.
type IntrospectionState struct {
	Fault         string // the fault of the last request; for operators
	Asked, Failed uint64 // numbers of requests
}

// State returns the state of the endpoint.
func (e *Endpoint) State() IntrospectionState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return IntrospectionState{e.fault, e.asked, e.failed}
}
