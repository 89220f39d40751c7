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
// start if the URL is unreadable or has no document. A broken document does not replace it, and a
// temporarily unreadable reference stays saved, with everything below it.
func TestKept(t *testing.T) {
	t.Parallel()
	const broken, empty = "<html>Please log in</html>", "openapi: 3.1.0\npaths: {}\n"
	const whole = "openapi: 3.1.0\npaths: { /x: { get: { operationId: %s } }, /p: { $ref: parts.yaml } }\n"
	const unusable = "its description cannot be used"
	s := &sites{texts: map[string]string{"/parts.yaml": "$ref: more.yaml\n", "/more.yaml": "get: { operationId: part }\n"}}
	server := httptest.NewServer(s)
	defer server.Close()
	c := Config{OpenAPI: server.URL + "/api.yaml?key=secret", BaseURL: "http://127.0.0.1:1", KeepDir: filepath.Join(t.TempDir(), "kept")}
	start := func() (tools, log string) {
		said := &adaptertest.Log{}
		a := adapter(t, c, Options{Log: said.Logger()})
		defer a.Close()
		up, err := a.Open(t.Context(), &bridge.Caller{Revision: calls.Revision}, nil)
		if err != nil && strings.Contains(err.Error(), unusable) {
			return unusable, said.String()
		} else if err != nil {
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

	var path string
	var saved []byte
	for _, step := range []struct {
		name, api, tools string
		kept             bool // the saved document is used
	}{
		{"broken", broken, unusable, false},
		{"empty", empty, "", false},
		{"empty, again", empty, "", false}, // nothing better is saved
		{"good", fmt.Sprintf(whole, "a"), "a part", false},
		{"broken later", broken, "a part", true},
		{"empty later", empty, "a part", true},
		{"another, without its part", fmt.Sprintf(whole, "b"), "b", false},
		{"unreadable", "", "b part", true},
	} {
		if s.set("/api.yaml", step.api); strings.HasPrefix(step.name, "another") {
			s.set("/parts.yaml", "")
		}
		tools, log := start()
		said := strings.Contains(log, "level=WARN") && strings.Contains(log, "the last good one stays in use") && strings.Contains(log, "age=")
		if tools != step.tools || said != step.kept || strings.Contains(log, "key=secret") {
			t.Errorf("%s: tools %s, log\n%s", step.name, tools, log)
		}
		if strings.HasSuffix(step.tools, "part") {
			before := saved
			if path, saved = only(); step.kept && step.api != "" && string(saved) != string(before) {
				t.Errorf("%s: the kept document has changed", step.name)
			}
		}
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
