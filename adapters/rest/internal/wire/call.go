package wire

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Call makes a call and returns its CallToolResult as JSON on one line. A fault is a result with
// isError, for the model. Call returns an error only after ctx ends or the source is closed: then no
// caller waits for a result.
func (s *Source) Call(ctx context.Context, c *Call) ([]byte, error) {
	p, a, result, err := s.perform(ctx, c)
	if err != nil || result != nil {
		return result, err
	}
	result = s.result(c, p, a)
	if s.budget.cache == nil {
		a.free()
	}
	return result, nil
}

// perform makes a call. It returns the answer, or in wrong a result that describes the fault, or both
// if the API declines the request. The plan is nil if the arguments are wrong. err is as for Call.
func (s *Source) perform(ctx context.Context, c *Call) (p *Plan, a *answer, wrong []byte, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, nil, errClosed
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	inner, cancel := context.WithTimeoutCause(ctx, s.timeout(c), errTimeout)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	var fetch func(string) (*param.File, error)
	if c.Resource != nil {
		fetch = func(uri string) (*param.File, error) { return s.fetch(inner, c, uri) }
	}
	p, err = s.plan(c, fetch)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, nil, context.Cause(ctx)
	case err != nil && s.life.Err() != nil:
		return nil, nil, nil, errClosed
	case err != nil:
		return p, nil, s.refused(err), nil
	}
	a, err = s.exchange(inner, p, c)
	switch {
	case ctx.Err() != nil:
		return nil, nil, nil, context.Cause(ctx)
	case s.life.Err() != nil:
		return nil, nil, nil, errClosed
	case err != nil:
		s.log.Debug("a call got no answer", "tool", c.Tool.Name, "err", err)
		return p, nil, s.failed(inner, c, p, err), nil
	case a.status >= 300 && a.status != http.StatusNotModified, c.Settings.fails(a):
		return p, a, s.declined(p, a), nil
	}
	return p, a, nil, nil
}

// exchange gets the answer to a request from the cache or the server.
func (s *Source) exchange(ctx context.Context, p *Plan, c *Call) (*answer, error) {
	cacheable := s.budget.cache != nil && !c.Settings.Uncached && p.Method == http.MethodGet && p.Body == nil
	var k *cached
	ask := p
	if cacheable {
		var fresh bool
		if k, fresh = s.budget.cache.get(p, time.Now()); fresh {
			return k.answer, nil
		}
		if k != nil && p.Header.Get("If-None-Match") == "" && p.Header.Get("If-Modified-Since") == "" {
			ask = k.conditional(p)
		}
	}
	leave, err := s.budget.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	asked := time.Now()
	res, err := s.send(ctx, ask)
	if err != nil {
		return nil, err
	}
	if ask != p && res.StatusCode == http.StatusNotModified {
		drain(res)
		return s.budget.cache.renew(p, k, res.Header, asked), nil
	}
	a, err := s.read(ctx, res, c.Progress)
	switch {
	case err != nil:
		return nil, err
	case cacheable:
		if !c.Settings.fails(a) {
			s.budget.cache.put(p, a, asked)
		}
	case s.budget.cache != nil && a.status < 400 && !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, p.Method):
		s.budget.cache.forget(p.URL)
	}
	return a, nil
}

// refused returns the result of a call that is not made because of err, such as wrong arguments.
func (s *Source) refused(err error) []byte {
	text := "the request cannot be made"
	if known, ok := errors.AsType[param.Refusal](err); ok {
		text = known.Error()
	} else if known, ok := errors.AsType[validate.Faults](err); ok {
		text = known.Error()
	}
	return errorResult(s.mask([]byte(text)))
}

// failed returns the result of a call that got no answer because of err.
func (s *Source) failed(ctx context.Context, c *Call, p *Plan, err error) []byte {
	what := p.Method + " " + p.path + " "
	if known, ok := errors.AsType[*Fault](err); ok {
		return errorResult(s.mask([]byte(what + known.Error())))
	}
	if to, ok := errors.AsType[*redirect](err); ok {
		return errorResult(s.mask([]byte(s.statusLine(to.status, p) + "\nIt redirects to " + to.to.Redacted() + ", which is not followed.")))
	}
	text := what + "got no answer: the API " + causeOf(ctx, err)
	if coding, ok := errors.AsType[remote.CodingError](err); ok {
		text = what + "cannot be read: " + coding.Error()
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout) {
		text += " (" + s.timeout(c).String() + ")"
	}
	return errorResult(s.mask([]byte(text)))
}
