package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Page is somebody who has signed in on the page for operators: what its cookie has, which
// nobody else can read or make. The key itself is not in it.
type Page struct {
	Principal string   `json:"p"`
	Sum       auth.Sum `json:"s"` // of the key
	Began     int64    `json:"b"` // Unix seconds
	Used      int64    `json:"u"`
}

const (
	PageCookie = "mcp-bridge-console"
	// pageKind is that of seals.
	pageKind = "console"
	// pageLast is how long somebody is signed in, and pageIdle how long without use. Use
	// is noted once in a while, by another cookie.
	pageLast = 12 * time.Hour
	pageIdle = time.Hour
	pageNote = time.Minute
	// PageHeader goes with requests that have the cookie and change something: no other
	// site's page can send it.
	PageHeader = "Bridge-Console"
)

// Pages are those who have signed in.
type Pages struct {
	// Holder returns whose the key of that sum is now.
	Holder func(auth.Sum) (principal string, ok bool)
	// Path returns the path that the cookie of a request is good below, as the browser sees
	// it, and whether the browser reaches it over TLS. base is what the bridge is served below.
	Path func(r *http.Request, base string) (path string, secure bool)

	key *seal.Key
}

// NewPages returns what nobody has signed in on.
func NewPages(holder func(auth.Sum) (string, bool), path func(r *http.Request, base string) (string, bool)) *Pages {
	k, err := seal.New()
	if err != nil {
		panic(err) // a random key always makes a cipher
	}
	return &Pages{holder, path, k}
}

// In returns a page on which somebody signs in now.
func In(principal string, sum auth.Sum) *Page {
	now := time.Now().Unix()
	return &Page{principal, sum, now, now}
}

// Good reports whether somebody is signed in still: the key counts, and is the same
// principal's.
func (s *Pages) Good(p *Page) bool {
	now := time.Now().Unix()
	if now-p.Began >= int64(pageLast/time.Second) {
		return false
	}
	who, ok := s.Holder(p.Sum)
	return ok && who == p.Principal
}

// Signed returns who has signed in on the page that a request is of. ok is false if it has
// no cookie, or a header with a key, which counts in its place. known is false if it was
// answered: somebody has to sign in again, or it does not say that it is the page's.
func (s *Pages) Signed(w http.ResponseWriter, r *http.Request, base string) (p Page, ok, known bool) {
	cookie, err := r.Cookie(PageCookie)
	if err != nil || auth.Shows(r.Header) {
		return Page{}, false, true
	}
	text, err := s.key.Open(pageKind, cookie.Value)
	now := time.Now()
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || !s.Good(&p) || now.Unix()-p.Used >= int64(pageIdle/time.Second) {
		s.Set(w, r, base, nil)
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
	c := http.Cookie{Name: PageCookie, Path: path, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure, MaxAge: -1}
	if p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			panic(err) // nothing in it can fail
		}
		c.Value, c.MaxAge = s.key.Seal(pageKind, text), int(pageLast/time.Second)-int(time.Now().Unix()-p.Began)
	}
	http.SetCookie(w, &c)
}
