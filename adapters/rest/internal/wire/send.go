package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cut"
)

const (
	firstPause = 250 * time.Millisecond // before the first retry
	maxPause   = 10 * time.Second       // before any retry, unless Retry-After asks for more
	// maxDrained bounds the bytes of an unwanted answer that are read to reuse its connection.
	maxDrained = 64 << 10
)

// send sends a request, and retries if that is safe and may help. The caller closes the answer's
// body.
func (s *Source) send(ctx context.Context, p *Plan) (*http.Response, error) {
	refreshed := false
	for tries := 0; ; {
		if err := s.budget.waitForRate(ctx); err != nil {
			return nil, err
		}
		res, used, count, err := s.attempt(ctx, p)
		if err == nil && res.StatusCode == http.StatusUnauthorized && !refreshed {
			// The token may be revoked. The server refused the request, so any request can be sent
			// again.
			if refreshed, err = s.renewed(ctx, p, res.Header, used); refreshed || err != nil {
				count(true)
				drain(res)
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		if tries++; tries > s.retries(p) {
			count(true)
			return res, err
		}
		wait, again := after(tries, res, err)
		if end, ok := ctx.Deadline(); !again || ok && time.Until(end) <= wait {
			count(true)
			return res, err
		}
		count(false) // a call counts once, by its last attempt
		if res != nil {
			drain(res)
		}
		if err := backoff.For(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// renewed reports to the token sources that the API refused the tokens in shown. again reports whether
// to retry with other tokens. The error says why there are none.
func (s *Source) renewed(ctx context.Context, p *Plan, h http.Header, shown []used) (again bool, err error) {
	for _, one := range shown {
		more, err := one.use.tokens.refused(p.tokenContext(ctx, one.use), one.token, h)
		if err != nil {
			return false, &Fault{Text: "is refused by the API: " + err.Error()}
		}
		again = again || more
	}
	return again, nil
}

// attempt sends a request once, and follows one 303 on the same server to the answer. shown are the
// tokens that the request carried, or nil after a 303. The caller must call count once, with whether
// the attempt counts for the host.
func (s *Source) attempt(ctx context.Context, p *Plan) (res *http.Response, shown []used, count func(counts bool), err error) {
	count = func(bool) {}
	r := p.request(ctx)
	if shown, err = p.authorize(ctx, r); err != nil {
		if ctx.Err() == nil && !errors.Is(err, errClosed) {
			if hook, ok := errors.AsType[*sign.HookError](err); ok && hook.Detail != "" {
				s.log.Warn("a request was not signed", "err", hook, "said", s.hookDetail(hook))
			}
			err = &Fault{Text: "was not sent: " + err.Error()}
		}
		return nil, nil, count, err
	}
	r = p.resigned(r)
	settle, err := s.budget.breakers.allow(r.URL.Host)
	if err != nil {
		return nil, shown, count, err
	}
	r.Header.Set("Accept-Encoding", "gzip")
	res, err = s.client(!s.reach.trusted.has(r.URL), p.guard).Do(r)
	if _, ok := errors.AsType[remote.RedirectError](err); ok && res != nil {
		settle(nil)
		to, lerr := res.Location()
		if lerr != nil {
			return nil, shown, count, err
		}
		if res.StatusCode == http.StatusSeeOther && remote.SameOrigin(to, p.URL) && p.Method != http.MethodGet {
			// Without tokens, the caller does not repeat the request: the server has executed it, even
			// if it refuses the tokens now.
			next, _, count, err := s.attempt(ctx, p.seeOther(to))
			return next, nil, count, err
		}
		return nil, shown, count, &redirect{status: res.StatusCode, to: to}
	}
	if errors.Is(err, remote.ErrRefused) {
		s.warnRefused(originOf(r.URL))
	}
	var outcome error
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout), errors.Is(err, remote.ErrRefused):
		outcome = errExcluded // the caller left, or no host was dialled
	case err != nil && ctx.Err() != nil:
		outcome = errTimeout
	case err != nil:
		outcome = err
	default:
		outcome = verdict(res.StatusCode)
	}
	return res, shown, func(counts bool) {
		if !counts {
			outcome = errExcluded
		}
		settle(outcome)
	}, err
}

// warnRefused logs that calls do not go to an origin, once for each origin.
func (s *Source) warnRefused(origin string) {
	if _, said := s.misplaced.LoadOrStore(origin, true); !said {
		s.log.Warn(Misplaced, "origin", origin)
	}
}

// Misplaced is the log line about a server to which a document at a URL may not send calls.
const Misplaced = "the document is at a URL, and names a server where it may send no calls: in a private network, on this machine, or where no API is; calls to it are refused; set base_url, or add the origin to trusted"

// seeOther returns the request for the target of a 303 (RFC 9110, 15.4.4).
func (p *Plan) seeOther(to *url.URL) *Plan {
	next := *p
	next.Method, next.URL, next.Body = http.MethodGet, to, nil
	next.Header = p.Header.Clone()
	next.Header.Del("Content-Type")
	return &next
}

// redirect is the error of an answer that redirects and is not followed.
type redirect struct {
	status int
	to     *url.URL
}

func (r *redirect) Error() string { return "it redirects" }

// after returns how long to wait after that number of tries, and whether another try may help.
func after(tries int, res *http.Response, err error) (time.Duration, bool) {
	wait := backoff.Grown(firstPause, maxPause, tries)
	wait = wait/2 + rand.N(wait/2+1) // requests that failed together return at different times
	if err != nil {
		return wait, remote.Unsent(err) && !remote.TLSFault(err) && !errors.Is(err, remote.ErrRefused)
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if told, ok := remote.RetryAfter(res.Header); ok {
			wait = max(told, wait)
		}
		return wait, true
	}
	return 0, false
}

// drain discards an unwanted answer, so that its connection can be reused.
func drain(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDrained)
	_ = res.Body.Close()
}

// causeOf says why there was no answer. It shows no addresses, and no data that is not HTTP.
func causeOf(ctx context.Context, err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
		return "did not answer in time"
	case ctx.Err() != nil:
		return "was not waited for"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "could not be reached: host not found"
	case errors.As(err, &dns):
		return "could not be reached: its name could not be looked up"
	case errors.Is(err, remote.ErrRefused):
		return "could not be reached: it is at an address that a document at a URL may not name; the operator of the bridge can allow it with base_url or trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "could not be reached: it refuses connections"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "could not be reached: its certificate is not valid for it"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "did not answer in time"
	}
	if remote.Unsent(err) {
		return "could not be reached"
	}
	return "broke off or did not speak HTTP"
}

// maxHookDetail bounds the text of a hook's error in the log, in bytes.
const maxHookDetail = 500

// hookDetail returns a hook's own error text for the log. Only here, values of the hook's environment
// are masked as well: an answer may well contain such a value, for example the name of a region.
func (s *Source) hookDetail(hook *sign.HookError) string {
	var own []string
	for _, c := range s.o.credentials() {
		if c.Hook != nil {
			own = slices.AppendSeq(own, maps.Values(c.Hook.Env))
		}
	}
	return cut.Head(s.secrets.With(long(own)...).Bytes([]byte(hook.Detail)), maxHookDetail)
}
