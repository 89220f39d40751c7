package remote

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/net/publicsuffix"
)

// Cookies holds the cookies that a server, or a load balancer before it, sets on one connection.
// Only later requests of the same connection send them back (RFC 6265). Load balancers use cookies to
// send a session always to the same node.
type Cookies struct {
	mu   sync.Mutex                         // guards jar and kept
	jar  *cookiejar.Jar                     // nil before the first cookie
	kept simplelru.LRUCache[string, func()] // by name, domain and path of a cookie: removes it from jar
}

var _ http.CookieJar = (*Cookies)(nil)

// These bound the cookies of one connection (RFC 6265, section 6.1).
const (
	maxCookies = 50
	maxCookie  = 4 << 10 // bytes of one cookie
)

// Cookies implements http.CookieJar.
func (c *Cookies) Cookies(u *url.URL) []*http.Cookie {
	c.mu.Lock()
	jar := c.jar
	c.mu.Unlock()
	if jar == nil {
		return nil
	}
	return jar.Cookies(u)
}

// SetCookies implements http.CookieJar. If there are more than maxCookies, it drops the one that was
// set longest ago. It ignores a cookie larger than maxCookie.
func (c *Cookies) SetCookies(u *url.URL, all []*http.Cookie) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jar == nil {
		c.jar, _ = cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List}) // never fails
		c.kept, _ = simplelru.NewLRU(maxCookies, func(_ string, remove func()) { remove() })
	}
	for _, cookie := range all {
		key := cookie.Name + ";" + cookie.Domain + ";" + cookie.Path
		if len(key)+len(cookie.Value) > maxCookie {
			continue
		}
		c.jar.SetCookies(u, []*http.Cookie{cookie})
		gone := &http.Cookie{
			Name:   cookie.Name,
			Domain: cookie.Domain,
			Path:   cookie.Path,
			MaxAge: -1,
		}
		c.kept.Add(key, func() { c.jar.SetCookies(u, []*http.Cookie{gone}) })
	}
}

// Header returns the cookies for an address as the value of the header Cookie.
func (c *Cookies) Header(u *url.URL) string {
	var all []string
	for _, cookie := range c.Cookies(u) {
		all = append(all, cookie.Name+"="+cookie.Value)
	}
	return strings.Join(all, "; ")
}

// Restore adds cookies in the form that Header returns.
func (c *Cookies) Restore(u *url.URL, header string) {
	if all, err := http.ParseCookie(header); err == nil {
		c.SetCookies(u, all)
	}
}

type cookiesKey struct{}

// WithCookies returns a context for the requests of one connection, which send and set its cookies.
func WithCookies(ctx context.Context, c *Cookies) context.Context {
	return context.WithValue(ctx, cookiesKey{}, c)
}
