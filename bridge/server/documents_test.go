package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
)

// library is a bridge with one API, words, of a configuration file.
type library struct {
	t    *testing.T
	dir  string
	api  *httptest.Server
	log  *lines
	s    *server
	site *httptest.Server
	r    *reload.Reloader
}

func (l *library) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// configure writes the configuration. rest are keys of the API.
func (l *library) configure(rest string) {
	l.t.Helper()
	l.write("bridge.yaml", "servers:\n  words:\n    rest:\n"+strings.ReplaceAll(rest, "API", l.api.URL))
}

const keys = "      openapi: ./words.yaml\n      base_url: API\n"

// newLibrary writes the files of a library. Nothing is served yet.
func newLibrary(t *testing.T) *library {
	l := &library{t: t, dir: t.TempDir(), log: &lines{}}
	l.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `["%s"]`, strings.TrimPrefix(r.URL.Path, "/words/"))
	}))
	t.Cleanup(l.api.Close)
	l.write("words.yaml", fmt.Sprintf(wordsAPI, "getWord"))
	l.configure(keys)
	return l
}

// serve serves them.
func (l *library) serve() {
	l.t.Helper()
	log := slog.New(slog.NewTextHandler(l.log, nil))
	file := filepath.Join(l.dir, "bridge.yaml")
	l.r = reload.New(reload.Options{File: file, Log: log, Load: func() (*config.Config, error) { return config.Load(file, nil) }})
	c, err := l.r.Load()
	if err != nil {
		l.t.Fatal(err)
	}
	s := build(c, log, (*server).reach)
	l.t.Cleanup(func() { s.Close(context.Background()) })
	l.s = s
	l.s.Reloads(l.r)
	l.site = httptest.NewServer(l.s.Handler())
	l.t.Cleanup(l.site.Close)
}

// said waits for a line of the log with all of these, and returns it.
func (l *library) said(parts ...string) (line string) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("the log has %q", parts), func() bool {
		for line = range strings.Lines(l.log.String()) {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return true
			}
		}
		return false
	})
	return line
}

// reader is a client of a library.
type reader struct {
	*mcp.ClientSession
	changed chan struct{}
}

func (l *library) connect() (*reader, error) {
	r := &reader{changed: make(chan struct{}, 10)}
	var err error
	r.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { r.changed <- struct{}{} },
	}).Connect(l.t.Context(), &mcp.StreamableClientTransport{Endpoint: l.site.URL + "/words/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err == nil {
		l.t.Cleanup(func() { r.Close() })
	}
	return r, err
}

func (l *library) reader() *reader {
	l.t.Helper()
	r, err := l.connect()
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// reads reports what is wrong with a call of the tool.
func (r *reader) reads(t *testing.T, tool string) error {
	result, err := r.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"word": "hello"}})
	if err == nil && (result.IsError || len(result.Content) == 0 || result.Content[0].(*mcp.TextContent).Text != `["hello"]`) {
		err = fmt.Errorf("%+v", result)
	}
	return err
}

// still fails unless an open session and a new one can call the tool.
func (l *library) still(open *reader, tool string) {
	l.t.Helper()
	for name, r := range map[string]*reader{"the open session": open, "a new session": l.reader()} {
		if err := r.reads(l.t, tool); err != nil {
			l.t.Errorf("%s: %v", name, err)
		}
	}
}

// ready returns what /readyz says.
func (l *library) ready() (code int, out status.Bridge) {
	l.t.Helper()
	resp, err := http.Get(l.site.URL + "/readyz")
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, out
}

// until waits until /readyz says so.
func (l *library) until(what string, so func(code int, b status.Bridge) bool) {
	l.t.Helper()
	eventually(l.t, what, func() bool { return so(l.ready()) })
}

// A fault in the document of an API refuses a start, however the bridge is served. At a reload it changes nothing: the API
// stays as it was.
func TestDocumentMistakes(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(l *library)
		want  string // of the fault
	}{
		{name: "a typo", spoil: func(l *library) { l.configure(keys + "      tools: { getWrod: off }\n") },
			want: `bridge.yaml:6: server "words": rest: tools: getWrod: the document has no such operation, and a tool of your own needs a request: did you mean "getWord"?`},
		{name: "a broken document", spoil: func(l *library) {
			l.configure(keys + "      pick: true\n")
			l.write("words.yaml", "openapi: 3.1.0\npaths: [\n")
		}, want: `bridge.yaml:4: server "words": rest: words.yaml: `},
		{name: "a missing document", spoil: func(l *library) { l.configure("      openapi: ./nowhere.yaml\n      base_url: API\n") },
			want: `bridge.yaml:4: server "words": rest: openapi is "./nowhere.yaml": does not exist`},
		{name: "a missing overlay", spoil: func(l *library) { l.configure(keys + "      overlays: [./fix.yaml]\n") },
			want: `bridge.yaml:6: server "words": rest: overlays: fix.yaml: `},
		{name: "a broken catalogue", spoil: func(l *library) {
			l.write("flows.json", `{"tools": 7}`)
			l.configure(keys + "      catalog: { file: ./flows.json }\n")
		}, want: `bridge.yaml:`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t)
			l.serve()
			open := l.reader()
			if err := open.reads(t, "getWord"); err != nil {
				t.Fatal(err)
			}
			test.spoil(l)
			for what, try := range map[string]func() (*reload.Result, error){"Check": l.r.Check, "Reload": l.r.Reload} {
				_, err := try()
				if faults, ok := errors.AsType[config.Faults](err); !ok || !strings.Contains(faults.Error(), test.want) {
					t.Fatalf("%s = %v, want %s", what, err, test.want)
				}
			}
			l.said("level=ERROR", "fault of the configuration", "words")
			if _, b := l.ready(); !strings.Contains(b.Config.LastError, "a fault in line ") {
				t.Errorf("last_error is %q", b.Config.LastError)
			}
			c, err := config.Load(filepath.Join(l.dir, "bridge.yaml"), nil)
			if err != nil {
				t.Fatal(err)
			}
			other := c.Servers[0]
			other.Name, other.Prefix = "other", "other__"
			if l.s.Replace(c.Servers[0]) == nil || l.s.Add(other) == nil || len(l.s.Config().Servers) != 1 {
				t.Errorf("Replace or Add takes it: %+v", l.s.Config().Servers)
			}
			l.still(open, "getWord")

			l.serve() // another bridge, of the same files
			faults, ok := errors.AsType[config.Faults](l.s.Fault())
			if !ok || len(faults) != 1 || !strings.Contains(faults.Error(), test.want) {
				t.Fatalf("the fault is %v, want %s", l.s.Fault(), test.want)
			}
			if _, err := l.s.Listen(t.Context()); err == nil || err.Error() != faults.Error() {
				t.Errorf("Listen = %v", err)
			}
			if code, b := l.ready(); code != http.StatusServiceUnavailable || b.Servers[0].State != "failing" {
				t.Errorf("readyz = %d %+v", code, b)
			}
		})
	}
}

// away is a document at a URL that is not always there.
type away struct {
	*httptest.Server
	mu   sync.Mutex // guards text
	text string
}

func newAway(t *testing.T, text string) *away {
	a := &away{text: text}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.text == "" {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, a.text)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *away) set(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text = text
}

// A document at a URL that cannot be read at the start is read when it can be. Until then the server is not ready, and the
// log says why. One that is unreachable when the settings change removes nothing: the API stays as it was, and changes
// when the document is read.
func TestDocumentAway(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	a := newAway(t, "")
	api := "      openapi: " + a.URL + "/words.yaml?key=top-secret-key\n      base_url: API\n"
	l.configure(api)
	l.serve()
	if err := l.s.Fault(); err != nil {
		t.Fatal(err)
	}
	if line := l.said("level=WARN", "cannot be read", "server=words", a.URL+"/words.yaml", "503"); strings.Contains(line, "top-secret-key") {
		t.Errorf("the log has the key: %s", line)
	}
	for range 2 {
		if code, b := l.ready(); code != http.StatusServiceUnavailable || b.Servers[0].State != "failing" || !strings.Contains(b.Servers[0].Reason, "503") {
			t.Errorf("readyz = %d %+v", code, b.Servers)
		}
		if _, err := l.connect(); err == nil {
			t.Error("a session began")
		}
	}
	document := fmt.Sprintf(wordsAPI, "getWord")
	a.set(document)
	l.said("tools made", "server=words") // without a client
	open := l.reader()
	if err := open.reads(t, "getWord"); err != nil {
		t.Fatal(err)
	}
	a.set("")
	for _, about := range []string{"A word.", "One word."} { // twice, since what is borrowed may be lent
		l.configure(api + "      tools: { getWord: { name: readWord, about: " + about + " } }\n")
		if _, err := l.r.Reload(); err != nil {
			t.Fatal(err)
		}
		l.still(open, "getWord")
	}
	l.said("level=WARN", "stays as it was", "server=words", "503")
	l.until("the loss is said", func(code int, b status.Bridge) bool {
		return code == http.StatusOK && strings.Contains(b.Servers[0].LastError, "503")
	})
	fresh := l.reader()
	if err := fresh.reads(t, "getWord"); err != nil {
		t.Error(err)
	}
	for len(open.changed) > 0 { // that the connection is another
		<-open.changed
	}
	a.set(document)
	for _, r := range []*reader{open, fresh} {
		for names := ""; names != "readWord"; { // there may be one of before
			<-r.changed
			tools, err := r.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 1 {
				t.Fatalf("tools = %v, %v", tools, err)
			}
			names = tools.Tools[0].Name
		}
	}
	l.still(open, "readWord")
	l.until("the change is applied", func(_ int, b status.Bridge) bool {
		return !strings.Contains(b.Servers[0].LastError, "is not applied yet")
	})
}
