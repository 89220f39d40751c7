package wire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestFailure shows the message of error answers, whatever their status.
func TestSettingsFailure(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, `{"ok":true,"errors":[],"error":null}`)
		case "/no":
			fmt.Fprint(w, `{"ok":false,"error":"no_such_channel","errors":[{"message":"one"},{"message":"two"}]}`)
		case "/text":
			fmt.Fprint(w, `error`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"title":"Bad","fault":{"code":12345678901234567890,"why":"the-secret-token is wrong"}}`)
		}
	})
	s := newSource(t, Options{BaseURL: rec.URL, Default: &Credential{Bearer: "the-secret-token"}})
	for _, test := range []struct {
		path, failure, when, want string
		isError                   bool
	}{
		{"/bad", "", "", "400 Bad Request from GET /bad\nBad", true},
		{"/bad", "fault.why", "", "400 Bad Request from GET /bad\n*** is wrong", true},
		{"/bad", "{fault.code,title}", "", `400 Bad Request from GET /bad` + "\n" + `{"code":12345678901234567890,"title":"Bad"}`, true},
		{"/bad", "gone", "", "400 Bad Request from GET /bad\nBad", true},
		{"/bad", "", "gone", "400 Bad Request from GET /bad\nBad", true},
		{"/no", "error", "", `{"ok":false,"error":"no_such_channel","errors":[{"message":"one"},{"message":"two"}]}`, false},
		{"/no", "errors.#.message", "errors", `200 OK from GET /no` + "\n" + `["one","two"]`, true},
		{"/no", "error", "error", "200 OK from GET /no\nno_such_channel", true},
		{"/no", "error", "ok", `{"ok":false,"error":"no_such_channel","errors":[{"message":"one"},{"message":"two"}]}`, false},
		{"/ok", "error", "error", `{"ok":true,"errors":[],"error":null}`, false},
		{"/ok", "error", "errors", `{"ok":true,"errors":[],"error":null}`, false},
		{"/text", "error", "error", "error", false},
	} {
		got := call(t, s, &Call{Tool: tool("GET", test.path), Settings: Settings{Failure: test.failure, FailureIf: test.when}})
		if said(got) != test.want || got.Get("isError").Bool() != test.isError {
			t.Errorf("%s, %q if %q: %s (error: %t), want %s", test.path, test.failure, test.when, said(got), got.Get("isError").Bool(), test.want)
		}
	}
}

// Paths of a catalogue do not enlarge an answer much: each of these doubles it repeatedly.
func TestSettingsBounded(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, `{"title":"Bad","@id":{"inner":"[1]"}}`)
	})
	s := newSource(t, Options{BaseURL: rec.URL})
	for _, path := range []string{strings.Repeat("[@this,@this]|", 40) + "@this", strings.Repeat("@tostr|", 40) + "@this", strings.Repeat("@this|", 200) + "@this"} {
		got := call(t, s, &Call{Tool: tool("GET", "/ok"), Result: path, Settings: Settings{Bounded: true, FailureIf: path}})
		if said(got) != `{"title":"Bad","@id":{"inner":"[1]"}}` || got.Get("isError").Bool() {
			t.Errorf("%.20s: %.100s", path, said(got))
		}
		got = call(t, s, &Call{Tool: tool("GET", "/bad"), Settings: Settings{Bounded: true, Failure: path}})
		if said(got) != "400 Bad Request from GET /bad\nBad" {
			t.Errorf("%.20s: %.100s", path, said(got))
		}
	}
	for path, want := range map[string]string{"{title}": `{"title":"Bad"}`, "@id.inner|@fromstr|0": "1", "@id": `{"inner":"[1]"}`} {
		if got := call(t, s, &Call{Tool: tool("GET", "/ok"), Result: path, Settings: Settings{Bounded: true}}); said(got) != want {
			t.Errorf("%s: %s, want %s", path, said(got), want)
		}
	}
}

// JSON that is nested too deep to be read safely is text, wherever it is examined.
func TestSettingsDepth(t *testing.T) {
	deep := strings.Repeat("[", scaletest.Of(1<<20, 8<<20-1))
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lines" {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		fmt.Fprint(w, deep)
	})
	s := newSource(t, Options{BaseURL: rec.URL})
	for path, c := range map[string]*Call{
		"/x":     {Settings: Settings{FailureIf: "error"}},
		"/lines": {Result: "0"},
	} {
		c.Tool = tool("GET", path)
		if got := call(t, s, c); got.Get("isError").Bool() || !strings.HasPrefix(said(got), `"[[[`) && !strings.HasPrefix(said(got), `[[[`) {
			t.Errorf("%s: %.100s", path, said(got))
		}
	}
}

// A tool's own attempts and timeout win over the source's.
func TestSettingsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			method string
			set    Settings
			want   int
		}{
			{"GET", Settings{}, 3}, {"GET", Settings{Attempts: 1}, 1}, {"GET", Settings{Attempts: 5}, 5}, {"POST", Settings{Attempts: 5}, 1}, {"POST", Settings{Attempts: 5, Repeat: true}, 5},
			{"GET", Settings{Attempts: 5, Timeout: time.Millisecond}, 1}, // no pause fits
		} {
			s, f := scripted(t, Options{Timeout: time.Minute, Breaker: breaker.Options{Off: true}}, http.StatusServiceUnavailable)
			call(t, s, &Call{Tool: tool(test.method, "/x"), Settings: test.set})
			if got := len(f.at); got != test.want {
				t.Errorf("%s with %+v: %d attempts, want %d", test.method, test.set, got, test.want)
			}
			s.Close()
		}
	})
}

// A tool's own timeout wins over the source's, and MaxTimeout over both.
func TestSettingsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ source, most, own, want time.Duration }{
			{time.Minute, 0, 0, time.Minute}, {time.Minute, 0, time.Hour, time.Hour}, {time.Minute, 0, time.Second, time.Second},
			{time.Minute, 2 * time.Minute, time.Hour, 2 * time.Minute}, {time.Minute, 2 * time.Minute, time.Second, time.Second}, {time.Minute, time.Second, 0, time.Second},
		} {
			s, _ := scripted(t, Options{Timeout: test.source, MaxTimeout: test.most, Attempts: 1}, hang)
			began := time.Now()
			got := call(t, s, &Call{Tool: tool("GET", "/x"), Settings: Settings{Timeout: test.own}})
			if took := time.Since(began); took != test.want || !strings.Contains(said(got), "did not answer in time ("+test.want.String()+")") {
				t.Errorf("%+v: %s after %v", test, said(got), took)
			}
			s.Close()
		}
	})
}

// An answer that names no time is cached for the tool's time, and for no other tool. An answer's
// own time wins.
func TestSettingsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s, _ := scripted(t, Options{CacheBytes: 1 << 20}, func(*http.Request) (*http.Response, error) {
			n++
			res := status(200)
			res.Body = body(fmt.Sprint(n))
			return res, nil
		})
		defer s.Close()
		get := func(set Settings) string { return said(call(t, s, &Call{Tool: tool("GET", "/x"), Settings: set})) }
		minute := Settings{KeepFor: time.Minute}
		first := get(minute)
		if again := get(minute); again != first {
			t.Errorf("%s after %s: not kept", again, first)
		}
		if other := get(Settings{}); other == first {
			t.Error("kept for a tool without a time")
		}
		if other := get(Settings{KeepFor: time.Minute, Uncached: true}); other == first {
			t.Error("taken from the cache though it is off")
		}
		time.Sleep(time.Minute)
		if again := get(minute); again == first {
			t.Error("kept for longer")
		}
	})
	now := time.Now()
	for _, test := range []struct {
		name, value string
		want        time.Duration
		ok          bool
	}{
		{"", "", time.Minute, true}, {"Cache-Control", "max-age=5", 5 * time.Second, true}, {"Cache-Control", "private", time.Minute, true},
		{"Cache-Control", "no-cache", 0, false}, {"Cache-Control", "no-store", 0, false}, {"Vary", "*", 0, false}, {"Expires", "0", 0, false},
	} {
		h := http.Header{}
		if test.name != "" {
			h.Set(test.name, test.value)
		}
		if until, ok := freshness(h, now, time.Minute); ok != test.ok || ok && until.Sub(now) != test.want {
			t.Errorf("%s: %s: %v, %t, want %v, %t", test.name, test.value, until.Sub(now), ok, test.want, test.ok)
		}
	}
}
