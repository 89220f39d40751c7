package rest

import (
	"bytes"
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
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// said is a log that can be read while it is written.
type said struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) has(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// replace replaces a file like editors and container volumes do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A changed document changes the tools. An unreadable one changes nothing, and a call ends on the
// edition that it began on.
func TestReload(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	text, err := os.ReadFile("testdata/pets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := api.pets()
	c.OpenAPI = file(t, string(text))
	c.Refresh = time.Second
	c.Tools = []toolset.Entry{{Key: "slow", About: "Takes its time."}}
	log := &said{}
	a := adapter(t, c, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	announced := make(chan string, 10)
	defer a.AnnounceChanges(func(method string) { announced <- method })()
	a.AnnounceChanges(func(string) { t.Error("who does not want to know any more was told of a change") })()
	one, other := &adaptertest.Client{}, &adaptertest.Client{}
	up := connect(t, a, one)
	connect(t, a, other)

	begun := make(chan string, 1)
	go func() {
		got, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)})
		begun <- fmt.Sprint(adaptertest.Text(got), err)
	}()
	eventually(t, "the slow request", func() bool { return api.count() > 0 })

	replace(t, c.OpenAPI, "openapi: 3.1.0\npaths: [")
	eventually(t, "the complaint", func() bool { return log.has("the tools stay as they were") > 0 })
	if got := names(t, up); !strings.HasPrefix(got, "listPets addPet") {
		t.Errorf("tools of a broken document: %s", got)
	}
	if err := os.Remove(c.OpenAPI); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another complaint", func() bool { return log.has("the tools stay as they were") > 1 })

	// The list is the same again: nobody needs to ask for it.
	replace(t, c.OpenAPI, "# as before\n"+string(text))
	eventually(t, "the document's return", func() bool { return log.has("tools made") > 1 })
	if got := one.Said(); len(got) > 0 {
		t.Errorf("the list is the same, and the client was told %s", got)
	}

	head, _, _ := strings.Cut(string(text), "  /slow:")
	replace(t, c.OpenAPI, strings.Replace(head, "listPets", "allPets", 1))
	for _, client := range []*adaptertest.Client{one, other} {
		if got := client.WaitSaid(t, 1); !slices.Equal(got, []string{changed}) {
			t.Errorf("the client was told %s", got)
		}
	}
	if got := <-announced; got != "notifications/tools/list_changed" || len(announced) > 0 {
		t.Errorf("announced %s and %d more", got, len(announced))
	}
	if got, want := names(t, up), "allPets addPet getPet deletePet watchEvents"; got != want {
		t.Errorf("tools = %s, want %s", got, want)
	}
	if log.has("no longer fits the document") == 0 {
		t.Error("nothing was said of the entry whose operation has gone")
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
	up := connect(t, a, &adaptertest.Client{})
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

// Referenced files are watched too.
func TestReloadOfParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		replace(t, filepath.Join(dir, name), text)
	}
	write("api.yaml", "openapi: 3.1.0\ninfo: { title: Parts, version: '1' }\npaths: { /x: { $ref: x.yaml } }\n")
	write("x.yaml", "get: { operationId: first, responses: {} }\n")
	client := &adaptertest.Client{}
	up := connect(t, adapter(t, Config{OpenAPI: filepath.Join(dir, "api.yaml"), BaseURL: "http://localhost", Refresh: time.Second}, Options{}), client)
	if got := names(t, up); got != "first" {
		t.Fatalf("tools = %s", got)
	}
	write("x.yaml", "get: { operationId: second, responses: {} }\n")
	client.WaitSaid(t, 1)
	if got := names(t, up); got != "second" {
		t.Errorf("tools = %s", got)
	}
}

// A URL is polled with its ETag, and read again only after a change. References to other servers
// are not read unless these are trusted.
func TestReloadOfURL(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "get: { operationId: far, responses: {} }\n")
	}))
	defer elsewhere.Close()
	var mu sync.Mutex // guards the rest
	name, asked, unchanged, broken := "first", 0, 0, false
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"`+name+`"`)
		if r.Header.Get("If-None-Match") == `"`+name+`"` {
			unchanged++
			w.WriteHeader(http.StatusNotModified)
			return
		}
		asked++
		fmt.Fprintf(w, "openapi: 3.1.0\ninfo: { title: T, version: '1' }\npaths: { /x: { get: { operationId: %s, responses: {} } }, /y: { $ref: '%s/y.yaml' } }\n", name, elsewhere.URL)
	}))
	defer site.Close()
	set := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
	}
	log := &said{}
	client := &adaptertest.Client{}
	c := Config{OpenAPI: site.URL + "/openapi.yaml", BaseURL: "http://localhost", Refresh: time.Second}
	up := connect(t, adapter(t, c, Options{Log: slog.New(slog.NewTextHandler(log, nil))}), client)
	if got := names(t, up); got != "first" {
		t.Errorf("tools = %s", got)
	}
	eventually(t, "a second look", func() bool { mu.Lock(); defer mu.Unlock(); return unchanged > 0 })
	set(func() {
		if asked != 1 {
			t.Errorf("read %d times though nothing had changed", asked)
		}
		broken = true
	})
	eventually(t, "the complaint", func() bool { return log.has("503") > 0 })
	set(func() { broken, name = false, "second" })
	client.WaitSaid(t, 1)
	if got := names(t, up); got != "second" {
		t.Errorf("tools = %s", got)
	}
	if n := log.has("the tools stay as they were"); n != 1 {
		t.Errorf("complained %d times, want once", n)
	}

	c.Trusted = []string{elsewhere.URL}
	if got := names(t, connect(t, adapter(t, c, Options{}), &adaptertest.Client{})); got != "second far" {
		t.Errorf("with a trusted server: tools = %s", got)
	}
}

// sites serves texts by path; a missing text is an error.
type sites struct {
	mu    sync.Mutex // guards texts
	texts map[string]string
}

func (s *sites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.texts[r.URL.Path]
	if text == "" {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, text)
}

func (s *sites) set(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[path] = text
}

// A change found while something else is unreadable is not lost: everything is read again later.
func TestReloadAfterFailure(t *testing.T) {
	t.Parallel()
	const whole = "openapi: 3.1.0\npaths: { /x: { get: { operationId: %s, responses: {} } } }\n"
	const parts = "openapi: 3.1.0\n# %s\npaths: { /x: { $ref: x.yaml } }\n"
	const item = "get: { operationId: part, responses: {} }\n"
	for _, test := range []struct {
		name, doc string
		failing   string // what is unreadable
		text      string // its text
		before    string
		after     string
	}{
		{"catalogue", whole, "/tools", flows("flow"), "first flow", "second flow"},
		{"part", parts, "/x.yaml", item, "part flow", "part flow"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &sites{texts: map[string]string{"/api.yaml": fmt.Sprintf(test.doc, "first"), "/x.yaml": item, "/tools": flows("flow")}}
			site := httptest.NewServer(s)
			defer site.Close()
			log := &said{}
			c := Config{OpenAPI: site.URL + "/api.yaml", BaseURL: "http://localhost", Refresh: time.Second, Catalog: Catalog{URL: site.URL + "/tools", Webhook: true, Secret: secret}}
			a := adapter(t, c, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
			up := connect(t, a, &adaptertest.Client{})
			if got := names(t, up); got != test.before {
				t.Fatalf("tools = %s, want %s", got, test.before)
			}
			s.set(test.failing, "")
			s.set("/api.yaml", fmt.Sprintf(test.doc, "second"))
			a.Renew(t.Context(), nil) // reads the document, and not the other
			s.set(test.failing, test.text)
			eventually(t, "all of it", func() bool { return names(t, up) == test.after })
		})
	}
}

// A text that stays unreadable does not hide other changes.
func TestReloadBesideFailure(t *testing.T) {
	t.Parallel()
	s := &sites{texts: map[string]string{
		"/api.yaml": "openapi: 3.1.0\npaths: { /x: { $ref: x.yaml } }\n", "/x.yaml": "get: { operationId: part, responses: {} }\n", "/tools": flows("one"),
	}}
	site := httptest.NewServer(s)
	defer site.Close()
	log := &said{}
	c := Config{OpenAPI: site.URL + "/api.yaml", BaseURL: "http://localhost", Refresh: time.Second, Catalog: Catalog{URL: site.URL + "/tools"}}
	up := connect(t, adapter(t, c, Options{Log: slog.New(slog.NewTextHandler(log, nil))}), &adaptertest.Client{})
	if got := names(t, up); got != "part one" {
		t.Fatalf("tools = %s", got)
	}
	s.set("/x.yaml", "")
	eventually(t, "the complaint", func() bool { return log.has("the tools stay as they were") > 0 })
	s.set("/tools", flows("two"))
	eventually(t, "the change of the catalogue", func() bool { return strings.HasSuffix(names(t, up), "two") })
}
