package rest

import (
	"fmt"
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
	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The last good document of a URL is saved on disk with its references. The bridge uses it at the
// start if the URL is unreadable or has no document. A broken document does not replace it.
func TestKept(t *testing.T) {
	t.Parallel()
	const broken, empty, whole = "<html>Please log in</html>", "openapi: 3.1.0\npaths: {}\n", "openapi: 3.1.0\npaths: { /a: { get: { operationId: a } }, /p: { $ref: parts.yaml } }\n"
	s := &sites{texts: map[string]string{"/api.yaml": broken, "/parts.yaml": "get: { operationId: part }\n"}}
	server := httptest.NewServer(s)
	defer server.Close()
	c := Config{OpenAPI: server.URL + "/api.yaml?key=secret", BaseURL: "http://127.0.0.1:1", KeepDir: filepath.Join(t.TempDir(), "kept")}
	start := func() (tools, log string) {
		said := &adaptertest.Log{}
		a := adapter(t, c, Options{Log: said.Logger()})
		defer a.Close()
		up, err := a.Open(t.Context(), &bridge.Caller{Revision: calls.Revision}, nil)
		if err != nil {
			return err.Error(), said.String()
		}
		defer up.Close(t.Context())
		return names(t, up), said.String()
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

	if tools, _ := start(); !strings.Contains(tools, "its description cannot be used") {
		t.Errorf("without a kept document: %s", tools)
	}
	s.set("/api.yaml", empty)
	for range 2 { // nothing better is saved
		if tools, log := start(); tools != "" || strings.Contains(log, "last good one") {
			t.Errorf("of an empty document: tools %s, log\n%s", tools, log)
		}
	}
	s.set("/api.yaml", whole)
	if tools, log := start(); tools != "a part" || strings.Contains(log, "last good one") {
		t.Errorf("tools %s, log\n%s", tools, log)
	}
	path, first := only()
	for _, bad := range []string{broken, empty} {
		s.set("/api.yaml", bad)
		if tools, log := start(); tools != "a part" || !strings.Contains(log, "level=WARN") || !strings.Contains(log, "the last good one stays in use") || !strings.Contains(log, "age=") || strings.Contains(log, "key=secret") {
			t.Errorf("of a broken document: tools %s, log\n%s", tools, log)
		}
		if _, now := only(); string(now) != string(first) {
			t.Error("the kept document has changed")
		}
	}
	s.set("/api.yaml", "openapi: 3.1.0\npaths: { /b: { get: { operationId: b } } }\n")
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
			reads(t, a, site)
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
	const doc = "openapi: 3.1.0\npaths: { /x: { get: { operationId: %s } }, /p: { $ref: parts.yaml } }\n"
	s := &sites{texts: map[string]string{"/api.yaml": fmt.Sprintf(doc, "a"), "/parts.yaml": "$ref: more.yaml\n", "/more.yaml": "get: { operationId: part }\n"}}
	server := httptest.NewServer(s)
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
	s.set("/parts.yaml", "")
	s.set("/api.yaml", fmt.Sprintf(doc, "b"))
	start("b")
	s.set("/api.yaml", "")
	start("b part")
}

// A folder that cannot be written to only causes a warning.
func TestKeptNowhere(t *testing.T) {
	server := httptest.NewServer(&sites{texts: map[string]string{"/api.yaml": "openapi: 3.1.0\npaths: { /b: { get: { operationId: b } } }\n"}})
	defer server.Close()
	log := &adaptertest.Log{}
	a := adapter(t, Config{OpenAPI: server.URL + "/api.yaml", BaseURL: server.URL, KeepDir: filepath.Join(file(t, "a file"), "kept")}, Options{Log: log.Logger()})
	if got := names(t, connect(t, a, nil)); got != "b" || times(log, "the document cannot be saved in keep_dir") != 1 {
		t.Errorf("tools %s, log\n%s", got, log)
	}
}
