package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth"
)

// site is a bridge where every key is of ops.
type site struct{}

func (site) Holder(auth.Sum) (string, bool)                { return "ops", true }
func (site) PagePath(*http.Request, string) (string, bool) { return "/ui", false }

// newPages returns pages where every key is of ops.
func newPages() *Pages {
	return NewPages(site{})
}

// at returns a request of a page at a host, with cookies.
func at(host string, cookies ...*http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "http://"+host+"/ui/api/v1/me", nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

// signed signs in at a host, and returns the cookie.
func signed(t *testing.T, p *Pages, host string) *http.Cookie {
	t.Helper()
	w := httptest.NewRecorder()
	p.SetCookie(w, at(host), "", NewPage("ops", auth.Sum{}))
	all := w.Result().Cookies()
	if len(all) != 1 || all[0].MaxAge != int(pageLife/time.Second) {
		t.Fatalf("%+v", all)
	}
	return all[0]
}

// looks reports whether a request is of somebody who has signed in, and what cookies it gets.
func looks(p *Pages, r *http.Request) (ok bool, cookies []*http.Cookie) {
	w := httptest.NewRecorder()
	_, ok, known := p.Signed(w, r, "")
	return ok && known, w.Result().Cookies()
}

// Signing out ends a page, its copies, and what was renewed of it; and no other page.
func TestSignOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "127.0.0.1:8808"
		s := newPages()
		mine, other := signed(t, s, host), signed(t, s, host)
		time.Sleep(2 * pageRenew)
		ok, renewed := looks(s, at(host, mine))
		if !ok || len(renewed) != 1 {
			t.Fatalf("%t %v", ok, renewed)
		}
		p, _ := s.open(at(host, mine))
		w := httptest.NewRecorder()
		s.SignOut(w, at(host, mine), "")
		if all := w.Result().Cookies(); len(all) != 1 || all[0].Name != mine.Name || all[0].MaxAge >= 0 {
			t.Errorf("signing out: %v", all)
		}
		for name, c := range map[string]*http.Cookie{"a copy": mine, "one that came late": renewed[0]} {
			if ok, set := looks(s, at(host, c)); ok || len(set) != 0 {
				t.Errorf("%s counts, or has a cookie: %t %v", name, ok, set)
			}
		}
		if s.Valid(&p) {
			t.Error("a stream goes on")
		}
		if ok, _ := looks(s, at(host, other)); !ok {
			t.Error("another page of the same caller has ended")
		}
	})
}

// Of those who have signed out, so many are remembered; those whose cookie has ended anyway
// go first.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		for range maxEnded {
			p.end(NewPage("ops", auth.Sum{}))
		}
		time.Sleep(pageLife / 2)
		last := NewPage("ops", auth.Sum{})
		p.end(last)
		if len(p.ended) != maxEnded || p.Valid(last) {
			t.Errorf("%d are remembered", len(p.ended))
		}
		time.Sleep(pageLife / 2)
		p.end(NewPage("ops", auth.Sum{}))
		if len(p.ended) != 2 || p.Valid(last) {
			t.Errorf("%d are remembered, want the two that could count", len(p.ended))
		}
	})
}

// Browsers send a cookie to each port of a host: bridges at several do not take those of
// others for theirs, and take none away.
func TestPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newPages(), newPages()
		first, second := signed(t, one, "localhost:8808"), signed(t, two, "localhost:8809")
		if first.Name == second.Name {
			t.Fatalf("both have the name %s", first.Name)
		}
		if ok, _ := looks(one, at("localhost:8808", first, second)); !ok {
			t.Error("one page is not signed in")
		}
		if ok, _ := looks(two, at("localhost:8809", first, second)); !ok {
			t.Error("the other page is not signed in")
		}
		again := newPages() // after a restart
		if ok, set := looks(again, at("localhost:8808", first)); ok || len(set) != 0 {
			t.Errorf("a cookie of another process: %t, %v", ok, set)
		}
	})
}
