package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
)

const wrongKey = "guess-0123456789abcdef"

// behind is private, with a proxy that is trusted.
func behind(c *config.Config) {
	private(c)
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
}

// guess shows a wrong key from there, and returns the status of the answer.
func (r *rig) guess(peer string, header ...string) int {
	return r.answer(from(peer, loopback, "POST", "/one/mcp", append(as(wrongKey), header...)...)).Code
}

// From one address only so many wrong keys may be shown in a time. Good ones, and
// none, are answered as ever, and so are other addresses.
func TestWrongKeys(t *testing.T) {
	run(t, behind, []string{"one"}, func(t *testing.T, r *rig) {
		status := func(want int, what, peer string, header ...string) {
			t.Helper()
			if got := r.answer(from(peer, loopback, "POST", "/one/mcp", header...)).Code; got != want {
				t.Errorf("%s from %s: %d, want %d", what, peer, got, want)
			}
		}
		const v6 = "[2001:db8::1]:1"
		for i := range access.WrongAtOnce {
			for _, peer := range []string{peer, v6} {
				if got := r.guess(peer); got != http.StatusUnauthorized {
					t.Fatalf("wrong key %d from %s: %d, want 401", i+1, peer, got)
				}
			}
		}
		a := r.answer(from(peer, loopback, "POST", "/one/mcp", as(wrongKey)...))
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") != "3" || !strings.Contains(a.Body.String(), `"data":{"bridge":"rate_limited","retryAfterMs":3000}`) {
			t.Errorf("one too many: %d %v %s", a.Code, a.Header(), a.Body)
		}
		status(429, "another port", "198.51.100.7:4321", as(wrongKey)...)
		status(429, "another address of the network", "[2001:db8::2]:1", as(wrongKey)...)
		status(401, "another network", "[2001:db8:0:1::1]:1", as(wrongKey)...)
		status(429, "an address that only the sender says", peer, append(as(wrongKey), "X-Forwarded-For", "192.0.2.9")...)
		status(401, "no key", peer)
		if a := r.answer(from(peer, loopback, "POST", "/one/mcp", as(aliceKey)...)); a.Code == 401 || a.Code == 429 {
			t.Errorf("a good key: %d %s", a.Code, a.Body)
		}
		if a := r.answer(from(peer, loopback, "GET", "/readyz", as(wrongKey)...)); a.Code != 200 || strings.Contains(a.Body.String(), "servers") {
			t.Errorf("/readyz: %d %s", a.Code, a.Body)
		}
		time.Sleep(access.WrongEvery)
		status(401, "after the pause", peer, as(wrongKey)...)
		status(429, "another one after the pause", peer, as(wrongKey)...)
	})
}

// Behind a proxy that is trusted, it is the address that the proxy says, and none
// that its client has made up.
func TestWrongKeysForwarded(t *testing.T) {
	run(t, behind, []string{"one"}, func(t *testing.T, r *rig) {
		for range access.WrongAtOnce {
			r.guess(proxy, "X-Forwarded-For", "203.0.113.1")
		}
		for _, test := range []struct {
			said []string
			want int
		}{
			{[]string{"203.0.113.1"}, 429},
			{[]string{"203.0.113.1, 10.0.0.2"}, 429}, // by two proxies
			{[]string{"192.0.2.1, 203.0.113.1"}, 429},
			{[]string{"192.0.2.1", " 203.0.113.1 "}, 429},
			{[]string{"::ffff:203.0.113.1"}, 429},
			{[]string{"203.0.113.2"}, 401},
			{[]string{"203.0.113.1, 203.0.113.3"}, 401},
			{[]string{"203.0.113.1, what"}, 401}, // the proxy's own
			{nil, 401},
		} {
			var header []string
			for _, line := range test.said {
				header = append(header, "X-Forwarded-For", line)
			}
			if got := r.guess(proxy, header...); got != test.want {
				t.Errorf("X-Forwarded-For %q: %d, want %d", test.said, got, test.want)
			}
		}
	})
}

// What is known of addresses is bounded: one that has not shown a wrong key for the
// longest time is forgotten.
func TestWrongKeysBounded(t *testing.T) {
	run(t, private, []string{"one"}, func(t *testing.T, r *rig) {
		for range access.WrongAtOnce {
			r.guess("192.0.2.1:1")
		}
		for i := range access.WrongAddresses - 1 {
			r.guess(peerOf(i))
		}
		if got := r.guess("192.0.2.1:1"); got != 429 {
			t.Errorf("beside %d others: %d, want 429", access.WrongAddresses-1, got)
		}
		for i := range access.WrongAddresses {
			r.guess(peerOf(i))
		}
		if got := r.guess("192.0.2.1:1"); got != 401 {
			t.Errorf("after %d others: %d, want 401", access.WrongAddresses, got)
		}
	})
}

// What docs/security.md has fail2ban look for is what the log has, in both of its
// formats, once for each address in a while.
func TestWrongKeysLogged(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```ini\n\\[Definition\\]\nfailregex = (.+?)^```$").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/security.md has no filter")
	}
	var filters []*regexp.Regexp
	for line := range strings.Lines(string(found[1])) {
		filters = append(filters, regexp.MustCompile(strings.ReplaceAll(strings.TrimSpace(line), "<HOST>", `(?P<host>[0-9A-Fa-f.:]+)`)))
	}
	shown := regexp.MustCompile("(?m)^```text\n(.*too many wrong keys.*)\n```$").FindSubmatch(page)
	if len(filters) != 2 || shown == nil {
		t.Fatalf("docs/security.md has %d expressions, and the line %q", len(filters), shown)
	}
	hosts := func(line string) (all []string) {
		for _, f := range filters {
			if m := f.FindStringSubmatch(line); m != nil {
				all = append(all, m[f.SubexpIndex("host")])
			}
		}
		return all
	}
	if got := hosts(string(shown[1])); len(got) != 1 || got[0] != "203.0.113.7" {
		t.Errorf("the line in docs/security.md shows %q", got)
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			r := newRigLog(t, slog.New(handler(&log)), private, "one")
			for range 3 * access.WrongAtOnce {
				r.guess(peer)
				r.guess("[2001:db8::7]:1")
			}
			// What a server writes to its stderr is in the log too.
			r.s.log.Info("stderr", "text", "\n"+`{"time":"","level":"WARN","msg":"too many wrong keys","from":"192.0.2.1"}`)
			r.s.log.Info("stderr", "text", "\n"+`time= level=WARN msg="too many wrong keys" from=192.0.2.1 `)
			var got []string
			for line := range strings.Lines(log.String()) {
				got = append(got, hosts(strings.TrimSuffix(line, "\n"))...)
				if in := hosts("host bridge[12]: " + line); len(in) != len(hosts(line)) {
					t.Errorf("%s: in a journal, %q shows %q", name, line, in)
				}
			}
			if strings.Join(got, " ") != "198.51.100.7 2001:db8::7" {
				t.Errorf("%s: the filter finds %q in\n%s", name, got, &log)
			}
		})
	}
}

// Wrong keys are in the metrics, with plain keys too, also those that are too many.
func TestWrongKeysCounted(t *testing.T) {
	run(t, private, []string{"one"}, func(t *testing.T, r *rig) {
		const more = 3
		for range access.WrongAtOnce + more {
			r.guess(peer)
		}
		got := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body()
		if want := fmt.Sprintf("\nmcp_bridge_auth_total{result=\"invalid\"} %d\n", access.WrongAtOnce+more); !strings.Contains(got, want) {
			t.Errorf("/metrics has no %q", want)
		}
	})
}
