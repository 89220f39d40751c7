package admin

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// acts is a bridge that counts the actions of operators.
type acts struct{ noted *int }

func (a *acts) RequestedHost(r *http.Request) string { return r.Host }
func (a *acts) Acted(string, string, string)         { *a.noted++ }

// Whoever has no key cannot fill the log, neither as a page of another site nor by actions
// that are denied. What a known caller is denied is in it.
func TestLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		noted := 0
		a := New(slog.New(slog.NewTextHandler(&log, nil)), &acts{&noted})
		a.Add(Route{Method: "POST", Path: "servers/{name}/probe", Right: Act, Do: func(*Call) (any, error) { return struct{}{}, nil }})
		path := "servers/" + strings.Repeat("x", 10_000) + "/probe"
		ask := func(principal string, header ...string) {
			r := httptest.NewRequest("POST", "/"+Base+path, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			w := httptest.NewRecorder()
			a.Serve(w, r, path, func(http.ResponseWriter, *http.Request) (Caller, bool, error) {
				return Caller{Principal: principal}, true, errors.New("not here")
			})
			if w.Code != http.StatusForbidden {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		lines := func() int { return strings.Count(log.String(), "\n") }
		for range 100 {
			ask("")
		}
		if lines() != 0 || noted != 0 {
			t.Errorf("who is nobody has %d lines, and %d in the access log", lines(), noted)
		}
		for range 100 {
			ask("", "Origin", "https://evil.example.com")
		}
		if n := lines(); n != 1 {
			t.Errorf("a page of another site has %d lines, want 1", n)
		}
		time.Sleep(refusedLogEvery)
		ask("", "Origin", "https://evil.example.com")
		if n := lines(); n != 2 || !strings.Contains(log.String(), "more=99") {
			t.Errorf("later it has %d lines:\n%s", n, log.String())
		}
		ask("dev")
		if lines() != 3 || noted != 1 || !strings.Contains(log.String(), "principal=dev") {
			t.Errorf("a known caller has %d lines, and %d in the access log", lines()-2, noted)
		}
		if log.Len() > 2000 {
			t.Errorf("three lines have %d bytes", log.Len())
		}
	})
}

// deadlines is an answer that notes the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	all []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.all = append(d.all, at)
	return nil
}

// A body must come in time, which goes on counting for the rest of one that has not come
// whole, and for no other.
func TestBodyDeadline(t *testing.T) {
	for _, tc := range []struct {
		body io.Reader
		ok   bool
		want int // deadlines: the second time it is taken away
	}{
		{strings.NewReader("{}"), true, 2},
		{strings.NewReader("{"), false, 2},
		{io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(io.ErrUnexpectedEOF)), false, 1},
		{strings.NewReader(strings.Repeat(" ", MaxBody) + "{}"), false, 1},
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		_, ok := Body(d, httptest.NewRequest("POST", "/", tc.body))
		if ok != tc.ok || len(d.all) != tc.want || d.all[0].IsZero() || tc.want == 2 && !d.all[1].IsZero() {
			t.Errorf("ok %t, the deadlines are %v; want %t and %d", ok, d.all, tc.ok, tc.want)
		}
	}
}
