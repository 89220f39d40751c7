package remote

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A connection sends the cookies that were set on it, where they are for, and no other
// connection does.
func TestCookies(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			for _, c := range []*http.Cookie{{Name: "node", Value: "a", Path: "/"}, {Name: "there", Value: "b", Path: "/elsewhere"}, {Name: "other", Value: "d", Domain: "example.org"}} {
				http.SetCookie(w, c)
			}
		}
		fmt.Fprint(w, r.Header["Cookie"])
	})
	c := client(t, Config{URL: s.URL + "/mcp", Headers: map[string]string{"Cookie": "mine=1"}})
	one, two := new(Cookies), new(Cookies)
	get := func(of *Cookies, method string) string {
		t.Helper()
		var got [2]string
		for i, do := range []func(*http.Request) (*http.Response, error){c.Do, c.Stream} {
			res, err := do(c.Request(WithCookies(t.Context(), of), method, c.URL(), nil, nil))
			if err != nil {
				t.Fatal(err)
			}
			got[i] = read(t, res)
		}
		if method == http.MethodGet && got[0] != got[1] {
			t.Errorf("Do sends %s, Stream %s", got[0], got[1])
		}
		return got[0]
	}
	if got := get(one, "POST"); got != "[mine=1]" {
		t.Errorf("the first request sends %s", got)
	}
	for _, tc := range []struct {
		of   *Cookies
		want string
	}{{one, "[mine=1; node=a]"}, {two, "[mine=1]"}} {
		if got := get(tc.of, "GET"); got != tc.want {
			t.Errorf("the next sends %s, want %s", got, tc.want)
		}
	}
	again := new(Cookies)
	again.Restore(c.URL(), one.Header(c.URL()))
	if got := get(again, "DELETE"); got != "[mine=1; node=a]" {
		t.Errorf("another process sends %s", got)
	}
}

// A server fills no memory with cookies, and one that changes its value counts once.
func TestCookiesBounded(t *testing.T) {
	u, _ := url.Parse("http://server.test/mcp")
	c := new(Cookies)
	for i := range 1000 {
		c.SetCookies(u, []*http.Cookie{{Name: fmt.Sprint("n", i), Value: "v"}, {Name: "node", Value: fmt.Sprint(i)}, {Name: "large", Value: strings.Repeat("x", maxCookie)}})
	}
	if got := c.Header(u); strings.Count(got, "=") != maxCookies || !strings.Contains(got, "node=999") || strings.Contains(got, "large") {
		t.Errorf("kept: %s", got)
	}
}
