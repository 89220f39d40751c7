package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The last good document of a URL is saved on disk with its references. The bridge uses it at the
// start if the URL is unreadable or has no document. A broken document does not replace it.
func TestKept(t *testing.T) {
	t.Parallel()
	var broken, empty, moved atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken.Load():
			fmt.Fprint(w, "<html>Please log in</html>")
		case empty.Load():
			fmt.Fprint(w, "openapi: 3.1.0\npaths: {}\n")
		case r.URL.Path == "/parts.yaml":
			fmt.Fprint(w, "get: { operationId: part, responses: {} }\n")
		case moved.Load():
			fmt.Fprint(w, "openapi: 3.1.0\npaths: { /b: { get: { operationId: b, responses: {} } } }\n")
		default:
			fmt.Fprint(w, "openapi: 3.1.0\npaths:\n  /a: { get: { operationId: a, responses: {} } }\n  /p: { $ref: parts.yaml }\n")
		}
	}))
	defer server.Close()
	c := Config{OpenAPI: server.URL + "/api.yaml?key=secret", BaseURL: "http://127.0.0.1:1", KeepDir: filepath.Join(t.TempDir(), "kept")}
	start := func() (tools, log string) {
		said := &said{}
		a := adapter(t, c, Options{Log: slog.New(slog.NewTextHandler(said, nil))})
		defer a.Close()
		up, err := a.Open(t.Context(), &bridge.Caller{Revision: calls.Revision}, nil)
		if err != nil {
			return err.Error(), said.b.String()
		}
		defer up.Close(t.Context())
		return names(t, up), said.b.String()
	}
	only := func() (path string, text []byte) {
		t.Helper()
		all, err := os.ReadDir(c.KeepDir)
		if err != nil || len(all) != 1 {
			t.Fatalf("in the folder are %v, error %v", all, err)
		}
		path = filepath.Join(c.KeepDir, all[0].Name())
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(path, "secret") {
			t.Errorf("%s has the mode %v, error %v", path, info.Mode(), err)
		}
		if text, err = os.ReadFile(path); err != nil || strings.Contains(string(text), "key=secret") {
			t.Errorf("it has the URL in it, error %v", err)
		}
		return path, text
	}

	broken.Store(true)
	if tools, _ := start(); !strings.Contains(tools, "its description cannot be used") {
		t.Errorf("without a kept document: %s", tools)
	}
	broken.Store(false)
	empty.Store(true)
	for range 2 { // nothing better is saved
		if tools, log := start(); tools != "" || strings.Contains(log, "last good one") {
			t.Errorf("of an empty document: tools %s, log\n%s", tools, log)
		}
	}
	empty.Store(false)
	if tools, log := start(); tools != "a part" || strings.Contains(log, "last good one") {
		t.Errorf("tools %s, log\n%s", tools, log)
	}
	path, first := only()
	for _, bad := range []*atomic.Bool{&broken, &empty} {
		bad.Store(true)
		if tools, log := start(); tools != "a part" || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "the last good one stays in use") || !strings.Contains(log, "age=") || strings.Contains(log, "key=secret") {
			t.Errorf("of a broken document: tools %s, log\n%s", tools, log)
		}
		if _, now := only(); string(now) != string(first) {
			t.Error("the kept document has changed")
		}
		bad.Store(false)
	}
	moved.Store(true)
	if tools, _ := start(); tools != "b" {
		t.Errorf("tools %s", tools)
	}
	server.Close()
	if tools, log := start(); tools != "b" || !strings.Contains(log, "the last good one stays in use") {
		t.Errorf("of a server that is down: tools %s, log\n%s", tools, log)
	}
	if err := os.WriteFile(path, []byte(`{"texts":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if tools, log := start(); !strings.Contains(tools, "its description cannot be used") || !strings.Contains(log, "is damaged: remove it") {
		t.Errorf("of a damaged file: %s, log\n%s", tools, log)
	}
}

// A server that does not answer delays the use of the saved document by patience only, and its own document is used
// soon after it answers.
func TestKeptBeforeSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		var wait atomic.Bool
		site := wiretest.NewSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "first"
			if wait.Load() {
				name = "second"
				select {
				case <-silent:
				case <-r.Context().Done():
					return
				}
			}
			fmt.Fprintf(w, "openapi: 3.1.0\npaths: { /a: { get: { operationId: %s } } }\n", name)
		}))
		c := Config{OpenAPI: "http://fake/api.yaml", BaseURL: "http://fake", KeepDir: t.TempDir()}
		begin := func() *Adapter {
			a := adapter(t, c, Options{})
			near, err := remote.New(remote.Config{Proxy: "none", Dial: func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }})
			if err != nil {
				t.Fatal(err)
			}
			*a.maker.texts.Clients() = document.Clients{
				Own:     near,
				Guarded: near,
				Outside: near,
			}
			return a
		}
		a := begin()
		if got := names(t, connect(t, a, nil)); got != "first" {
			t.Fatalf("tools %s", got)
		}
		a.Close()
		wait.Store(true)
		began, client := time.Now(), &adaptertest.Client{}
		up := connect(t, begin(), client)
		if got, took := names(t, up), time.Since(began); got != "first" || took != document.Patience {
			t.Errorf("tools %s after %v, want those of the saved document after %v", got, took, document.Patience)
		}
		close(silent)
		client.WaitSaid(t, 1)
		if got := names(t, up); got != "second" {
			t.Errorf("tools %s", got)
		}
	})
}

// A temporarily unreadable reference of a document stays saved, with everything below it.
func TestKeptInPart(t *testing.T) {
	t.Parallel()
	var busy, moved, down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load(), busy.Load() && r.URL.Path == "/parts.yaml":
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case r.URL.Path == "/parts.yaml":
			fmt.Fprint(w, "$ref: more.yaml\n")
		case r.URL.Path == "/more.yaml":
			fmt.Fprint(w, "get: { operationId: part, responses: {} }\n")
		case moved.Load():
			fmt.Fprint(w, "openapi: 3.1.0\npaths:\n  /b: { get: { operationId: b, responses: {} } }\n  /p: { $ref: parts.yaml }\n")
		default:
			fmt.Fprint(w, "openapi: 3.1.0\npaths:\n  /a: { get: { operationId: a, responses: {} } }\n  /p: { $ref: parts.yaml }\n")
		}
	}))
	defer server.Close()
	c := Config{OpenAPI: server.URL + "/api.yaml", BaseURL: "http://127.0.0.1:1", KeepDir: t.TempDir()}
	start := func(want string) {
		t.Helper()
		a := adapter(t, c, Options{})
		defer a.Close()
		up := connect(t, a, nil)
		defer up.Close(t.Context())
		if got := names(t, up); got != want {
			t.Errorf("tools %s, want %s", got, want)
		}
	}

	start("a part")
	busy.Store(true)
	moved.Store(true)
	start("b")
	down.Store(true)
	start("b part")
}

// A folder that cannot be written to only causes a warning.
func TestKeptNowhere(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "openapi: 3.1.0\npaths: { /b: { get: { operationId: b, responses: {} } } }\n")
	}))
	defer server.Close()
	log := &said{}
	a := adapter(t, Config{OpenAPI: server.URL + "/api.yaml", BaseURL: server.URL, KeepDir: filepath.Join(file(t, "a file"), "kept")}, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if got := names(t, connect(t, a, nil)); got != "b" || log.has("the document cannot be saved in keep_dir") != 1 {
		t.Errorf("tools %s, log\n%s", got, log.b.String())
	}
}
