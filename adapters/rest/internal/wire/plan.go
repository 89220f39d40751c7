package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Plan is one request before credentials are added, so that code that shows a plan cannot show
// credentials. String also masks other probable secrets.
type Plan struct {
	Method string
	URL    *url.URL
	Header http.Header
	Body   []byte // nil without a body

	op          *openapi.Operation
	path, query string            // of the operation, encoded
	base        string            // the query of the server's address
	subject     *identity.Subject // the caller's token, or nil
	uses        []use             // the credentials; none if the server is not trusted
	guard       guard             // which addresses of the server may be dialled
	forwarded   []string          // names of headers with the caller's values
	fixed       []string          // names of configured headers
	settings    Settings
	mask        func([]byte) []byte // replaces secrets
	hidden      map[string]bool     // configured headers whose values are secret
	trace       http.Header         // headers of the call's trace; nil if the server is not trusted
}

// userAgent is the User-Agent unless the configuration sets one.
const userAgent = "mcp-bridge"

// request returns the HTTP request, without credentials.
func (p *Plan) request(ctx context.Context) *http.Request {
	r := (&http.Request{
		Method:     p.Method,
		URL:        p.URL,
		Host:       p.URL.Host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     p.Header.Clone(),
	}).WithContext(ctx)
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", userAgent)
	}
	for name, values := range p.trace {
		if r.Header[name] == nil {
			r.Header[name] = values
		}
	}
	if p.Body != nil {
		r.ContentLength = int64(len(p.Body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.Body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r
}

// forwards reports whether the caller's own value is sent for a header.
func (p *Plan) forwards(name string) bool {
	return slices.ContainsFunc(p.forwarded, func(own string) bool { return openapi.SameHeader(own, name) })
}

// authorized reports whether the plan has a header that is probably a credential.
func (p *Plan) authorized() bool {
	for name := range p.Header {
		if sanitize.MayNameSecret(name) {
			return true
		}
	}
	return false
}

// used is a token that a request carries, with its credential.
type used struct {
	use   *use
	token string
}

// authorize adds the credentials to a request, and signs it. It returns the tokens that the request
// carries.
func (p *Plan) authorize(ctx context.Context, r *http.Request) (shown []used, err error) {
	for i := range p.uses {
		u := &p.uses[i]
		if u.place == openapi.InHeader && p.forwards(u.name) {
			continue // the caller's own value wins
		}
		value := u.value
		if u.tokens != nil {
			token, err := u.tokens.get(p.tokenContext(ctx, u))
			if err != nil {
				return nil, err
			}
			shown = append(shown, used{u, token})
			if token == "" {
				continue // the authorization server is still unknown
			}
			value = "Bearer " + token
		}
		switch u.place {
		case openapi.InHeader:
			replace(r.Header, u.name, []string{value})
		case openapi.InQuery:
			at := *r.URL
			if at.RawQuery != "" {
				at.RawQuery += "&"
			}
			at.RawQuery += param.Escape(u.name, param.Unreserved) + "=" + param.Escape(value, param.Unreserved)
			r.URL = &at
		case openapi.InCookie:
			cookie := param.Escape(u.name, param.CookieNames) + "=" + param.Escape(value, param.CookieOctets)
			if has := r.Header.Get("Cookie"); has != "" {
				cookie = has + "; " + cookie
			}
			r.Header.Set("Cookie", cookie)
		}
	}
	return shown, p.sign(ctx, r)
}

// tokenContext returns the context for getting a credential's token for this request.
func (p *Plan) tokenContext(ctx context.Context, u *use) context.Context {
	return oauth.WithSubject(oauth.WithScopes(ctx, u.scopes), p.subject)
}

// masked is what replaces a secret.
const masked = "***"

// maxPrinted bounds the bytes of a body that String shows.
const maxPrinted = 64 << 10

// String returns the request as the text of HTTP, with secrets masked.
func (p *Plan) String() string {
	r := p.request(context.Background())
	u := *r.URL
	if own, ok := strings.CutPrefix(u.RawQuery, p.base); ok && p.base != "" { // base may contain a key
		pairs := strings.Split(p.base, "&")
		for i, pair := range pairs {
			if name, _, valued := strings.Cut(pair, "="); valued {
				pairs[i] = name + "=" + masked
			} else {
				pairs[i] = masked
			}
		}
		u.RawQuery = strings.Join(pairs, "&") + own
	}
	if len(p.settings.MaskedQuery) > 0 {
		pairs := strings.Split(u.RawQuery, "&")
		for i, pair := range pairs {
			name, _, valued := strings.Cut(pair, "=")
			if plain, err := url.QueryUnescape(name); err == nil && valued && slices.Contains(p.settings.MaskedQuery, plain) {
				pairs[i] = name + "=" + masked
			}
		}
		u.RawQuery = strings.Join(pairs, "&")
	}
	hooked := ""
	for _, one := range p.uses {
		value := masked
		if one.name == "Authorization" {
			value = "Bearer " + masked
			if scheme, _, ok := strings.Cut(one.value, " "); ok {
				value = scheme + " " + masked
			}
		}
		switch {
		case one.signs.AWS != nil:
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 "+masked)
			r.Header.Set("X-Amz-Date", masked)
		case one.signs.Hook != nil:
			hooked = "(and the headers that the hook gives)\n"
		}
		switch one.place {
		case openapi.InHeader:
			if !p.forwards(one.name) {
				replace(r.Header, one.name, []string{value})
			}
		case openapi.InQuery:
			if u.RawQuery != "" {
				u.RawQuery += "&"
			}
			u.RawQuery += param.Escape(one.name, param.Unreserved) + "=" + masked
		case openapi.InCookie:
			cookie := param.Escape(one.name, param.CookieNames) + "=" + masked
			if has := r.Header.Get("Cookie"); has != "" {
				cookie = has + "; " + cookie
			}
			r.Header.Set("Cookie", cookie)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", p.Method, u.String())
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		value := strings.Join(r.Header[name], ", ")
		if slices.Contains(p.forwarded, name) && sanitize.MayNameSecret(name) || slices.Contains(p.fixed, name) && p.hidden[name] || slices.Contains(p.settings.Masked, name) {
			value = masked
		}
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	b.WriteString(hooked)
	switch body := p.Body; {
	case body == nil:
	case !utf8.Valid(body):
		fmt.Fprintf(&b, "\n(%d bytes that are not text)\n", len(body))
	case len(body) > maxPrinted:
		fmt.Fprintf(&b, "\n%s\n(%d bytes in all)\n", strings.ToValidUTF8(string(body[:maxPrinted]), ""), len(body))
	default:
		fmt.Fprintf(&b, "\n%s\n", body)
	}
	return string(p.mask([]byte(b.String())))
}

// replace sets a header, and removes headers that a server may take for the same one.
func replace(h http.Header, name string, values []string) {
	maps.DeleteFunc(h, func(other string, _ []string) bool { return openapi.SameHeader(other, name) })
	h[name] = values
}

// Idempotent reports whether a request with the method may be sent twice.
func Idempotent(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete}, method)
}

// repeatable reports whether the request may be sent twice.
func (p *Plan) repeatable() bool {
	return Idempotent(p.Method) || p.Header.Get("Idempotency-Key") != "" || p.settings.Repeat
}
