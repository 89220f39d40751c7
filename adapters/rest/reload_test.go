package rest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// replace replaces a file like editors and container volumes do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// slowCall begins a call of the tool slow. It returns when the API has the request.
func slowCall(t *testing.T, api *api, up bridge.Upstream) (ended <-chan string) {
	t.Helper()
	asked, end := api.count(), make(chan string, 1)
	go func() {
		got, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)})
		end <- fmt.Sprint(adaptertest.Text(got), err)
	}()
	eventually(t, "the slow request", func() bool { return api.count() > asked })
	return end
}

// A changed document changes the tools. An unusable one changes nothing, and a call ends on the
// edition that it began on.
func TestReload(t *testing.T) {
	t.Parallel()
	api, other := newAPI(t), newAPI(t)
	text := `openapi: 3.1.0
servers: [{ url: ` + api.URL + ` }]
paths:
  /first: { get: { operationId: first } }
  /list: { get: { operationId: list, parameters: [{ name: owner, in: query, schema: { type: string } }] } }
  /shelf: { get: { operationId: shelf, summary: A shelf } }
  /slow: { get: { operationId: slow } }
`
	with := func(change ...string) string { return strings.NewReplacer(change...).Replace(text) }
	faster := with("A shelf", "Every shelf", "  /slow: { get: { operationId: slow } }\n", "")
	c := Config{OpenAPI: file(t, text), Args: []toolset.Arg{{Name: "owner", Off: true}}, Tools: []toolset.Entry{{Key: "slow", About: "Takes its time."}, {Key: "shelf", As: toolset.AsResource}}}
	log := &adaptertest.Log{}
	a := adapter(t, c, Options{Log: log.Logger()})
	announced := make(chan string, 10)
	defer a.AnnounceChanges(func(method string) { announced <- method })()
	a.AnnounceChanges(func(string) { t.Error("who does not want to know any more was told of a change") })()
	one, another := &adaptertest.Client{}, &adaptertest.Client{}
	up := connect(t, a, one)
	connect(t, a, another)
	begun := slowCall(t, api, up)

	const before = "first list slow"
	var told []string
	for complaints, step := range []struct {
		name, doc   string
		fault       string // of the reading
		names, told string
	}{
		{"broken", "openapi: 3.1.0\npaths: [", "did not find expected", before, ""},
		{"gone", "", "no such file", before, ""},
		{"without operations", "openapi: 3.1.0\npaths: {}\n", "has no operations", before, ""},
		{"without servers", with("servers: [{ url: "+api.URL+" }]\n", ""), "does not say where the API is", before, ""},
		{"as before", "# as before\n" + text, "", before, ""}, // nobody needs to ask for the list
		{"without operations again", "openapi: 3.1.0\npaths: {}\n", "has no operations", before, ""},
		{"another resource", with("A shelf", "Every shelf"), "", before, "resources"},
		{"without an operation that an entry changes", faster, "", "first list", "tools"},
		{"an operation that escapes args", strings.NewReplacer("/list:", "/{owner}/list:", "in: query", "in: path, required: true").Replace(faster), "", "first", "tools"},
		{"at another server", strings.Replace(faster, api.URL, other.URL, 1), "", "first list", "tools"},
	} {
		if replace(t, c.OpenAPI, step.doc); step.doc == "" {
			if err := os.Remove(c.OpenAPI); err != nil {
				t.Fatal(err)
			}
		}
		_, err := a.Renew(t.Context(), nil)
		if step.fault == "" && err != nil || step.fault != "" && (err == nil || !strings.Contains(err.Error(), step.fault)) {
			t.Errorf("%s: %v, want %q", step.name, err, step.fault)
		}
		if step.told != "" {
			told = append(told, `{"jsonrpc":"2.0","method":"notifications/`+step.told+`/list_changed"}`)
			if got := <-announced; got != "notifications/"+step.told+"/list_changed" || len(announced) > 0 {
				t.Errorf("%s: announced %s and %d more", step.name, got, len(announced))
			}
		}
		for _, client := range []*adaptertest.Client{one, another} {
			if got := client.Said(); strings.Join(got, "\n") != strings.Join(told, "\n") {
				t.Errorf("%s: the client was told %s, want %s", step.name, got, told)
			}
		}
		if got := names(t, up); got != step.names {
			t.Errorf("%s: tools = %s, want %s", step.name, got, step.names)
		}
		if text, bad := call(t, up, "first", "{}"); bad {
			t.Errorf("%s: %s", step.name, text)
		}
		if complaints < 4 && times(log, "the tools stay as they were") != complaints+1 {
			t.Errorf("%s: the log is %s", step.name, log)
		}
	}
	if times(log, "no longer fits the document") == 0 || times(log, "the document names another server for the API") != 1 || other.count() != 1 {
		t.Errorf("the new server has %d requests; the log: %s", other.count(), log)
	}
	close(api.slow)
	if got := <-begun; !strings.Contains(got, "at last") {
		t.Errorf("the call that was under way: %s", got)
	}
}

// The budget of an API outlives its editions: answers stay cached, and requests stay counted.
func TestReloadKeepsBudget(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c, yes := api.pets(), true
	c.Tools = []toolset.Entry{{Key: "getPet", Cache: &yes, KeepFor: time.Hour}}
	c.Limits.Rate = limits.Rate{PerSecond: 1.0 / 3600, Burst: 1}
	a := adapter(t, c, Options{Timeout: time.Minute})
	up := connect(t, a, nil)
	first, _ := call(t, up, "getPet", `{"id":1}`)
	if _, err := a.Renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if again, _ := call(t, up, "getPet", `{"id":1}`); again != first || api.count() != 1 {
		t.Errorf("the answer is %s after %d requests, want %s after one", again, api.count(), first)
	}
	if text, isError := call(t, up, "getPet", `{"id":2}`); !isError || !strings.Contains(text, "the limit of 1/h for requests to this API is reached") {
		t.Errorf("beyond the rate: %s", text)
	}
}

// All files are watched: the document, its parts, overlays and the catalogue. A catalogue in a
// container's volume is replaced by a link to its folder: the path, and even size and time, stay the
// same.
func TestWatchedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, when := t.TempDir(), time.Now().Add(-time.Hour)
		at := func(name string) string { return filepath.Join(dir, name) }
		volume := func(version, text string) {
			t.Helper()
			catalogue := filepath.Join(at(version), "tools.json")
			if err := errors.Join(os.Mkdir(at(version), 0o700), os.WriteFile(catalogue, []byte(text), 0o600), os.Chtimes(catalogue, when, when),
				os.Symlink(version, at(version+".tmp")), os.Rename(at(version+".tmp"), at("data"))); err != nil {
				t.Fatal(err)
			}
		}
		replace(t, at("api.yaml"), "openapi: 3.1.0\npaths: { /x: { $ref: x.yaml }, /y: { get: { operationId: y } } }\n")
		replace(t, at("x.yaml"), "get: { operationId: first }\n")
		replace(t, at("fix.yaml"), "overlay: 1.0.0\nactions: [{ target: \"$.paths['/y'].get\", update: { summary: Y } }]\n")
		volume("v1", flows("one", "two"))
		log := &adaptertest.Log{}
		a := adapter(t, Config{OpenAPI: at("api.yaml"), BaseURL: "http://localhost", Overlays: []string{at("fix.yaml")}, Catalog: Catalog{File: filepath.Join(at("data"), "tools.json")}}, Options{Log: log.Logger()})
		up := connect(t, a, nil)
		for _, step := range []struct {
			name   string
			change func()
			want   string
		}{
			{"nothing", func() {}, "first y one two"},
			{"a part", func() { replace(t, at("x.yaml"), "get: { operationId: second }\n") }, "second y one two"},
			{"an overlay", func() {
				replace(t, at("fix.yaml"), "overlay: 1.0.0\nactions: [{ target: \"$.paths['/y']\", remove: true }]\n")
			}, "second one two"},
			{"the document", func() {
				replace(t, at("api.yaml"), "openapi: 3.1.0\npaths: { /x: { $ref: x.yaml }, /z: { get: { operationId: z } } }\n")
			}, "second z one two"},
			{"the catalogue", func() { volume("v2", flows("one", "red")) }, "second z one red"},
			{"a broken catalogue", func() { volume("v3", `{"tools":[`) }, "second z one red"},
		} {
			step.change()
			time.Sleep(3 * time.Second) // the longest time until a change is seen
			synctest.Wait()
			if got := names(t, up); got != step.want {
				t.Errorf("%s: tools = %s, want %s", step.name, got, step.want)
			}
		}
		if times(log, "the tools stay as they were") != 1 {
			t.Errorf("the log is %s", log)
		}
		if _, err := a.Renew(t.Context(), []byte(flows("x"))); !errors.Is(err, ErrElsewhere) {
			t.Errorf("a catalogue was brought: %v", err)
		}
	})
}

// sites serves texts by path, with an ETag; a missing text is an error.
type sites struct {
	mu    sync.Mutex // guards the rest
	texts map[string]string
	whole int // answers with a text
}

func (s *sites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.texts[r.URL.Path]
	if text == "" {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	etag := fmt.Sprintf("%q", fmt.Sprintf("%x", text))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.whole++
	fmt.Fprint(w, text)
}

func (s *sites) set(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[path] = text
}

func (s *sites) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

// reads makes an adapter read its texts from a site in memory, for a bubble.
func reads(t *testing.T, a *Adapter, site *wiretest.Site) {
	t.Helper()
	near, err := remote.New(remote.Config{Proxy: "none", Dial: func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	*a.maker.texts.Clients() = document.Clients{
		Own:     near,
		Guarded: near,
		Outside: near,
	}
}

// URLs are polled with their ETags, and read again only after a change. A change found while
// something else is unreadable is not lost, and a text that stays unreadable hides no other change.
// References to other servers are not read unless these are trusted.
func TestReloadOfURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := func(name string) string {
			return "openapi: 3.1.0\npaths: { /x: { get: { operationId: " + name + " } }, /p: { $ref: part.yaml }, /y: { $ref: 'http://elsewhere/far.yaml' } }\n"
		}
		const part, far = "get: { operationId: part }\n", "get: { operationId: far }\n"
		s := &sites{texts: map[string]string{"/api.yaml": doc("first"), "/part.yaml": part, "/far.yaml": far, "/tools": flows("one")}}
		site := wiretest.NewSite(t, s)
		c := Config{OpenAPI: "http://fake/api.yaml", BaseURL: "http://localhost", Refresh: time.Second, Catalog: Catalog{URL: "http://fake/tools"}}
		log, client := &adaptertest.Log{}, &adaptertest.Client{}
		a := adapter(t, c, Options{Log: log.Logger()})
		reads(t, a, site)
		up := connect(t, a, client)
		for _, step := range []struct {
			name       string
			set        map[string]string
			renew      bool // at once, which fails
			want       string
			complaints int // so far
			whole      int // texts that are read; -1 for any number
		}{
			{"nothing", nil, false, "first part one", 0, 0},
			{"the document is away", map[string]string{"/api.yaml": ""}, false, "first part one", 1, 0},
			{"and stays away", nil, false, "first part one", 1, 0},
			{"another document", map[string]string{"/api.yaml": doc("second")}, false, "second part one", 1, -1},
			{"a part is away", map[string]string{"/part.yaml": ""}, false, "second part one", 2, 0},
			{"the catalogue changes beside it", map[string]string{"/tools": flows("two")}, false, "second two", 2, -1},
			{"the part is there again", map[string]string{"/part.yaml": part}, false, "second part two", 2, -1},
			{"a change while the catalogue is away", map[string]string{"/api.yaml": doc("third"), "/tools": ""}, true, "second part two", 3, -1},
			{"the catalogue is there again", map[string]string{"/tools": flows("two")}, false, "third part two", 3, -1},
			{"a change while the part is away", map[string]string{"/api.yaml": doc("fourth"), "/part.yaml": ""}, true, "fourth two", 3, -1},
			{"the part is there again", map[string]string{"/part.yaml": part}, false, "fourth part two", 3, -1},
		} {
			before := s.answers()
			for path, text := range step.set {
				s.set(path, text)
			}
			if step.renew {
				_, _ = a.Renew(t.Context(), nil)
			} else {
				time.Sleep(2 * time.Second) // the longest time until a change is seen
				synctest.Wait()
			}
			whole := s.answers() - before
			if got := names(t, up); got != step.want || times(log, "the tools stay as they were") != step.complaints || step.whole >= 0 && whole != step.whole {
				t.Errorf("%s: tools = %s, want %s; %d texts; the log is %s", step.name, got, step.want, whole, log)
			}
		}
		if got := client.Said(); len(got) == 0 || got[0] != changed {
			t.Errorf("the client was told %s", got)
		}
		c.Trusted = []string{"http://elsewhere"}
		trusting := adapter(t, c, Options{})
		reads(t, trusting, site)
		if got := names(t, connect(t, trusting, nil)); got != "fourth part far two" {
			t.Errorf("with a trusted server: tools = %s", got)
		}
	})
}
