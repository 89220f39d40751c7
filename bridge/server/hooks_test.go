package server

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const hookSecret = "a-secret-of-the-hook"

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// A webhook does something for those who know its secret, and for nobody else.
func TestHook(t *testing.T) {
	var log bytes.Buffer
	var got []string
	var fails error
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("flows", ""), config.DefaultServer("other", "")}
	s := build(&c, slog.New(slog.NewTextHandler(&log, nil)), func(_ *server, s *config.Server) backend {
		b := backend{Adapter: &wiretest.Server{}, transport: func() string { return "rest" }}
		if s.Name == "flows" {
			b.hook = newHook(hookSecret, func(_ context.Context, body []byte) (int, error) {
				got = append(got, string(body))
				return 3, fails
			})
		}
		return b
	})
	defer s.Close(t.Context())
	post := func(path, body string, header ...string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Host = "localhost"
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	const auth, body = "Authorization", `{"tools":[]}`
	for _, test := range []struct {
		name   string
		path   string
		body   string
		header []string
		status int
	}{
		{"bearer", "/hooks/flows", body, []string{auth, "Bearer " + hookSecret}, 200},
		{"bearer in small letters, nothing sent", "/hooks/flows", "", []string{auth, "bearer " + hookSecret}, 200},
		{"signature", "/hooks/flows", body, []string{signature, sign(hookSecret, body)}, 200},
		{"signature of nothing", "/hooks/flows", "", []string{signature, sign(hookSecret, "")}, 200},
		{"nothing shown", "/hooks/flows", body, nil, 401},
		{"another secret", "/hooks/flows", body, []string{auth, "Bearer " + hookSecret + "x"}, 401},
		{"a part of it", "/hooks/flows", body, []string{auth, "Bearer " + hookSecret[1:]}, 401},
		{"empty", "/hooks/flows", body, []string{auth, "Bearer "}, 401},
		{"another scheme", "/hooks/flows", body, []string{auth, "Basic " + hookSecret}, 401},
		{"no scheme", "/hooks/flows", body, []string{auth, hookSecret}, 401},
		{"signature of another body", "/hooks/flows", body + " ", []string{signature, sign(hookSecret, body)}, 401},
		{"signature with another secret", "/hooks/flows", body, []string{signature, sign("x", body)}, 401},
		{"signature without its kind", "/hooks/flows", body, []string{signature, strings.TrimPrefix(sign(hookSecret, body), "sha256=")}, 401},
		{"half a signature", "/hooks/flows", body, []string{signature, sign(hookSecret, body)[:39]}, 401},
		{"empty digits", "/hooks/flows", body, []string{signature, "sha256="}, 401},
		{"a wrong signature beside the secret", "/hooks/flows", body, []string{signature, "sha256=00", auth, "Bearer " + hookSecret}, 401},
		{"too large", "/hooks/flows", strings.Repeat(" ", rest.MaxCatalog+1<<20), []string{auth, "Bearer " + hookSecret}, 413},
		{"a page in a browser", "/hooks/flows", "", []string{auth, "Bearer " + hookSecret, "Origin", "https://evil.example.com"}, 403},
		{"a server without a hook", "/hooks/other", "", []string{auth, "Bearer " + hookSecret}, 404},
		{"no server", "/hooks/nobody", "", []string{auth, "Bearer " + hookSecret}, 404},
	} {
		got = nil
		w := post(test.path, test.body, test.header...)
		if w.Code != test.status {
			t.Errorf("%s: %d %s, want %d", test.name, w.Code, w.Body, test.status)
		}
		if passed := len(got) == 1 && got[0] == test.body; passed != (test.status == 200) || !passed && len(got) > 0 {
			t.Errorf("%s: renewed with %q", test.name, got)
		}
		if test.status == 200 && w.Body.String() != `{"tools":3}` {
			t.Errorf("%s: %s", test.name, w.Body)
		}
	}
	for err, status := range map[error]int{
		&rest.CatalogError{Err: errors.New("no list of tools")}: http.StatusUnprocessableEntity,
		rest.ErrElsewhere:             http.StatusConflict,
		errors.New("internal detail"): http.StatusBadGateway,
	} {
		fails = err
		w := post("/hooks/flows", body, auth, "Bearer "+hookSecret)
		if told := strings.Contains(w.Body.String(), err.Error()); w.Code != status || told != (status != http.StatusBadGateway) {
			t.Errorf("%v: %d %s, want %d", err, w.Code, w.Body, status)
		}
	}
	if strings.Contains(log.String(), hookSecret) || !strings.Contains(log.String(), "internal detail") {
		t.Errorf("the log has %s", log.String())
	}
}

// A server may be removed while a request for its webhook is looked at.
func TestHookRemoved(t *testing.T) {
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("flows", "")}
	s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		return backend{Adapter: &wiretest.Server{}, hook: newHook(hookSecret, nil)}
	})
	defer s.Close(t.Context())
	with, without := s.table.Load(), &table{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			s.table.Store(without)
			s.table.Store(with)
		}
	})
	h := s.Handler()
	for range scaletest.Of(2000, 20000) {
		r := httptest.NewRequest("POST", "/hooks/flows", nil)
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+hookSecret+"x")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code == http.StatusInternalServerError {
			t.Error("a panic")
			break
		}
	}
	stop()
	wg.Wait()
}
