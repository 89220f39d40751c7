package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Page is one sign-in on the page for operators. It is the content of the sign-in's cookie, which only
// the bridge can read or make. It does not contain the key.
type Page struct {
	ID        string   `json:"i"` // random
	Principal string   `json:"p"`
	Sum       auth.Sum `json:"s"` // of the key
	Began     int64    `json:"b"` // Unix seconds
	Used      int64    `json:"u"` // when a use was last recorded
}

const (
	pageCookie = "mcp-bridge-console-"
	// pageKind is the purpose of the seals of cookies.
	pageKind = "console"
	// pageLife limits a sign-in, and pageIdle its time without use. pageRenew is the interval at
	// which use is recorded, by a new cookie.
	pageLife  = 12 * time.Hour
	pageIdle  = time.Hour
	pageRenew = time.Minute
	// pageCheck is the interval between checks of the sign-in while a request of the page is in flight.
	pageCheck = 2 * time.Second
	// maxEnded bounds the sign-ins that are recorded as ended.
	maxEnded = 4096
	// PageHeader is required in requests with the cookie that are not a GET. Pages of other sites cannot send it.
	PageHeader = "Bridge-Console"
)

// CookieName returns the name of the cookie of a page at a request's host and port. Browsers send
// cookies to every port of a host, where another bridge may be.
func CookieName(host string) string {
	sum := sha256.Sum256([]byte(host))
	return pageCookie + hex.EncodeToString(sum[:4])
}

// Pages checks the sign-ins of the page for operators.
type Pages struct {
	bridge PagesBridge
	key    *seal.Key

	mu    sync.Mutex       // guards the rest
	ended map[string]int64 // when the cookies of ended sign-ins expire, in Unix seconds, by Page.ID
}

// PagesBridge is the bridge that operators sign in on.
type PagesBridge interface {
	// Holder returns the principal to which the key with that sum belongs now.
	Holder(auth.Sum) (principal string, ok bool)
	// PagePath returns the path of the cookie, as the browser sees it, and whether the browser uses
	// TLS. base is the base path of the bridge.
	PagePath(r *http.Request, base string) (path string, secure bool)
}

// NewPages returns Pages without a sign-in.
func NewPages(p PagesBridge) *Pages {
	k, err := seal.New()
	if err != nil {
		panic(err) // a random key always makes a cipher
	}
	return &Pages{
		bridge: p,
		key:    k,
		ended:  map[string]int64{},
	}
}

// NewPage returns a new sign-in.
func NewPage(principal string, sum auth.Sum) *Page {
	now := time.Now().Unix()
	return &Page{rand.Text(), principal, sum, now, now}
}

// until returns when a sign-in expires, in Unix seconds, even if the page is still in use.
func (p *Page) until() int64 { return p.Began + int64(pageLife/time.Second) }

// Valid reports whether a sign-in is still valid: pageLife is not over, the key still belongs to the same principal,
// and the user has not signed out. Valid does not check pageIdle.
func (p *Pages) Valid(page *Page) bool {
	p.mu.Lock()
	_, ended := p.ended[page.ID]
	p.mu.Unlock()
	if ended || time.Now().Unix() >= page.until() {
		return false
	}
	who, ok := p.bridge.Holder(page.Sum)
	return ok && who == page.Principal
}

// SignOut ends the sign-in of a request: its cookie, and any copy of it, is no longer accepted.
func (p *Pages) SignOut(w http.ResponseWriter, r *http.Request, base string) {
	if page, ok := p.open(r); ok && p.Valid(&page) {
		p.end(&page)
	}
	p.SetCookie(w, r, base, nil)
}

// errSignedOut is the cause with which a sign-out ends the requests of a page.
var errSignedOut = errors.New("this page was signed out")

// Follow returns a request of a page with a context that ends with the sign-in. The caller calls
// done when the request has been answered.
func (p *Pages) Follow(r *http.Request, page *Page) (followed *http.Request, done func()) {
	ctx, cancel := context.WithCancelCause(httpio.Attached(r.Context()))
	var mu sync.Mutex // guards timer, which may fire before it is assigned
	mu.Lock()
	defer mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(pageCheck, func() {
		mu.Lock()
		defer mu.Unlock()
		if !p.Valid(page) {
			cancel(errSignedOut)
		} else if ctx.Err() == nil {
			timer.Reset(pageCheck)
		}
	})
	return r.WithContext(ctx), func() {
		mu.Lock()
		defer mu.Unlock()
		cancel(nil)
		timer.Stop()
	}
}

func (p *Pages) end(page *Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ended) >= maxEnded {
		now, first := time.Now().Unix(), ""
		for id, until := range p.ended {
			if until <= now {
				delete(p.ended, id)
			} else if first == "" || until < p.ended[first] {
				first = id
			}
		}
		if len(p.ended) >= maxEnded {
			delete(p.ended, first)
		}
	}
	p.ended[page.ID] = page.until()
}

// open returns the sign-in of a request's cookie.
func (p *Pages) open(r *http.Request) (page Page, ok bool) {
	cookie, err := r.Cookie(CookieName(r.Host))
	if err != nil {
		return Page{}, false
	}
	text, err := p.key.Open(pageKind, cookie.Value)
	if err != nil || json.Unmarshal(text, &page) != nil {
		return Page{}, false
	}
	return page, true
}

// Signed returns the sign-in of a request. If the request has no cookie, or a header with a key, which takes
// precedence, ok is false. If the sign-in has ended, or PageHeader is missing, Signed answers the request, and known
// is false.
func (p *Pages) Signed(w http.ResponseWriter, r *http.Request, base string) (page Page, ok, known bool) {
	if _, err := r.Cookie(CookieName(r.Host)); err != nil || auth.HasCredential(r.Header) {
		return Page{}, false, true
	}
	now := time.Now()
	if page, ok = p.open(r); !ok || !p.Valid(&page) || now.Unix()-page.Used >= int64(pageIdle/time.Second) { // the cookie is not deleted: the browser may have a newer cookie by now
		Refuse(w, http.StatusUnauthorized, "unauthorized", "sign in again")
		return Page{}, false, false
	}
	if r.Method != http.MethodGet && r.Header.Get(PageHeader) != "1" {
		Refuse(w, http.StatusForbidden, "header", "a signed-in page must send the header "+PageHeader+": 1 with this request")
		return Page{}, false, false
	}
	if now.Unix()-page.Used >= int64(pageRenew/time.Second) {
		page.Used = now.Unix()
		p.SetCookie(w, r, base, &page)
	}
	return page, true, true
}

// SetCookie sets the cookie, or deletes it if page is nil.
func (p *Pages) SetCookie(w http.ResponseWriter, r *http.Request, base string, page *Page) {
	path, secure := p.bridge.PagePath(r, base)
	c := http.Cookie{
		Name:     CookieName(r.Host),
		Path:     path,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   secure,
		MaxAge:   -1,
	}
	if page != nil {
		text, err := json.Marshal(page)
		if err != nil {
			panic(err) // every member has a JSON form
		}
		c.Value, c.MaxAge = p.key.Seal(pageKind, text), int(page.until()-time.Now().Unix())
	}
	http.SetCookie(w, &c)
}
