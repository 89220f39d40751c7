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

// Page is somebody who has signed in on the page for operators: what its cookie has, which
// nobody else can read or make. The key itself is not in it.
type Page struct {
	ID        string   `json:"i"` // random
	Principal string   `json:"p"`
	Sum       auth.Sum `json:"s"` // of the key
	Began     int64    `json:"b"` // Unix seconds
	Used      int64    `json:"u"`
}

const (
	pageCookie = "mcp-bridge-console-"
	// pageKind is that of seals.
	pageKind = "console"
	// pageLast is how long somebody is signed in, and pageIdle how long without use. Use
	// is noted once in a while, by another cookie.
	pageLast = 12 * time.Hour
	pageIdle = time.Hour
	pageNote = time.Minute
	// pageLook is how often it is looked whether a page is signed in still that has a
	// request under way.
	pageLook = 2 * time.Second
	// maxEnded bounds those that are remembered who have signed out.
	maxEnded = 4096
	// PageHeader goes with requests that have the cookie and change something: no other
	// site's page can send it.
	PageHeader = "Bridge-Console"
)

// CookieName returns the name of the cookie of a page at that host and port, as the request
// has them: browsers send cookies to each port of a host, where another bridge may be.
func CookieName(host string) string {
	sum := sha256.Sum256([]byte(host))
	return pageCookie + hex.EncodeToString(sum[:4])
}

// Pages are those who have signed in.
type Pages struct {
	// Holder returns whose the key of that sum is now.
	Holder func(auth.Sum) (principal string, ok bool)
	// Path returns the path that the cookie of a request is good below, as the browser sees
	// it, and whether the browser reaches it over TLS. base is what the bridge is served below.
	Path func(r *http.Request, base string) (path string, secure bool)

	key *seal.Key

	mu    sync.Mutex       // guards the rest
	ended map[string]int64 // of those who have signed out, by ID: when their cookies would have ended, in Unix seconds
}

// NewPages returns what nobody has signed in on.
func NewPages(holder func(auth.Sum) (string, bool), path func(r *http.Request, base string) (string, bool)) *Pages {
	k, err := seal.New()
	if err != nil {
		panic(err) // a random key always makes a cipher
	}
	return &Pages{Holder: holder, Path: path, key: k, ended: map[string]int64{}}
}

// In returns a page on which somebody signs in now.
func In(principal string, sum auth.Sum) *Page {
	now := time.Now().Unix()
	return &Page{rand.Text(), principal, sum, now, now}
}

// until returns when a page ends, however it is used.
func (p *Page) until() int64 { return p.Began + int64(pageLast/time.Second) }

// Good reports whether somebody is signed in still: the key counts, and is the same
// principal's, and nobody has signed out.
func (s *Pages) Good(p *Page) bool {
	s.mu.Lock()
	_, ended := s.ended[p.ID]
	s.mu.Unlock()
	if ended || time.Now().Unix() >= p.until() {
		return false
	}
	who, ok := s.Holder(p.Sum)
	return ok && who == p.Principal
}

// End signs out whoever has signed in on the page that a request is of: neither its cookie
// nor a copy of it counts any more.
func (s *Pages) End(w http.ResponseWriter, r *http.Request, base string) {
	if p, ok := s.open(r); ok && s.Good(&p) {
		s.end(&p)
	}
	s.Set(w, r, base, nil)
}

// errSignedOut is why a request of a page ends.
var errSignedOut = errors.New("the page is not signed in any more")

// Follow returns a request of a page, which ends when nobody is signed in on it any more.
// done is called when it has been answered.
func (s *Pages) Follow(r *http.Request, p *Page) (followed *http.Request, done func()) {
	ctx, cancel := context.WithCancelCause(httpio.Attached(r.Context()))
	var mu sync.Mutex // guards timer, which may be due before it is set
	mu.Lock()
	defer mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(pageLook, func() {
		mu.Lock()
		defer mu.Unlock()
		if !s.Good(p) {
			cancel(errSignedOut)
		} else if ctx.Err() == nil {
			timer.Reset(pageLook)
		}
	})
	return r.WithContext(ctx), func() {
		mu.Lock()
		defer mu.Unlock()
		cancel(nil)
		timer.Stop()
	}
}

func (s *Pages) end(p *Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		now, first := time.Now().Unix(), ""
		for id, until := range s.ended {
			if until <= now {
				delete(s.ended, id)
			} else if first == "" || until < s.ended[first] {
				first = id
			}
		}
		if len(s.ended) >= maxEnded {
			delete(s.ended, first)
		}
	}
	s.ended[p.ID] = p.until()
}

// open returns the page that the cookie of a request is of.
func (s *Pages) open(r *http.Request) (p Page, ok bool) {
	cookie, err := r.Cookie(CookieName(r.Host))
	if err != nil {
		return Page{}, false
	}
	text, err := s.key.Open(pageKind, cookie.Value)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return Page{}, false
	}
	return p, true
}

// Signed returns who has signed in on the page that a request is of. ok is false if it has
// no cookie, or a header with a key, which counts in its place. known is false if it was
// answered: somebody has to sign in again, or it does not say that it is the page's.
func (s *Pages) Signed(w http.ResponseWriter, r *http.Request, base string) (p Page, ok, known bool) {
	if _, err := r.Cookie(CookieName(r.Host)); err != nil || auth.Shows(r.Header) {
		return Page{}, false, true
	}
	now := time.Now()
	if p, ok = s.open(r); !ok || !s.Good(&p) || now.Unix()-p.Used >= int64(pageIdle/time.Second) { // the cookie stays: it may be another one by now
		Refuse(w, http.StatusUnauthorized, "unauthorized", "sign in again")
		return Page{}, false, false
	}
	if r.Method != http.MethodGet && r.Header.Get(PageHeader) != "1" {
		Refuse(w, http.StatusForbidden, "header", "a page that is signed in sends the header "+PageHeader+": 1 with this")
		return Page{}, false, false
	}
	if now.Unix()-p.Used >= int64(pageNote/time.Second) {
		p.Used = now.Unix()
		s.Set(w, r, base, &p)
	}
	return p, true, true
}

// Set sets the cookie, or takes it away.
func (s *Pages) Set(w http.ResponseWriter, r *http.Request, base string, p *Page) {
	path, secure := s.Path(r, base)
	c := http.Cookie{Name: CookieName(r.Host), Path: path, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure, MaxAge: -1}
	if p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			panic(err) // nothing in it can fail
		}
		c.Value, c.MaxAge = s.key.Seal(pageKind, text), int(p.until()-time.Now().Unix())
	}
	http.SetCookie(w, &c)
}
