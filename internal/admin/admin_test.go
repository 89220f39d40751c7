package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever has no key cannot fill the log, neither as a page of another site nor by actions
// that are denied. What a known caller is denied is in it.
func TestLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		noted := 0
		a := New(Options{
			Log:   slog.New(slog.NewTextHandler(&log, nil)),
			Host:  func(r *http.Request) string { return r.Host },
			Noted: func(principal, action, outcome string) { noted++ },
		})
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
		time.Sleep(refusedEvery)
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
