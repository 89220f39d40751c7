package rest

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/bridge"
)

// Begin reads a file once, and later clients use the result. The log names operations that cannot be tools.
func TestBegin(t *testing.T) {
	t.Parallel()
	log := &adaptertest.Log{}
	c := Config{OpenAPI: file(t, "openapi: 3.0.0\npaths: { /a: { get: { operationId: a } }, /b: { $ref: '#/gone' } }\n"), BaseURL: "http://localhost"}
	a := adapter(t, c, Options{Log: log.Logger()})
	if err := a.Check(); !errors.Is(err, document.ErrUnread) {
		t.Errorf("before: %v", err)
	}
	if err := a.Begin(nil); err != nil || a.Check() != nil || times(log, "tools made") != 1 {
		t.Fatalf("Begin = %v", err)
	}
	if got := names(t, connect(t, a, nil)); got != "a" || times(log, "tools made") != 1 {
		t.Errorf("tools = %s, made %d times", got, times(log, "tools made"))
	}
	if times(log, `level=WARN msg="operations of the document cannot be tools`) != 1 || times(log, `operations=[/b]`) != 1 {
		t.Errorf("the log does not name the lost operation: %s", log)
	}
}

// Begin returns faults of files, even beside a URL. Open returns them too, and shows clients no details.
func TestBeginMistakes(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(&sites{texts: map[string]string{}})
	defer site.Close()
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"a document", func(c *Config) { c.OpenAPI = "rig_test.go" }, "rig_test.go"},
		{"a document beside a catalogue", func(c *Config) { c.OpenAPI, c.Catalog.URL = "rig_test.go", site.URL }, "rig_test.go"},
		{"an overlay of a document elsewhere", func(c *Config) { c.OpenAPI, c.Overlays = site.URL, []string{"gone.yaml"} }, "overlays: gone.yaml"},
		{"no file", func(c *Config) { c.OpenAPI = "testdata/nothing.yaml" }, "nothing.yaml"},
		{"an unknown operation", func(c *Config) { c.Tools = []toolset.Entry{{Key: "getPets", Off: true}} }, `did you mean "getPet"?`},
		{"a catalogue", func(c *Config) { c.Catalog.File = "rig_test.go" }, "catalogue"},
		{"no address", func(c *Config) { c.BaseURL, c.OpenAPI = "", file(t, "openapi: 3.1.0\npaths: { /x: { get: {} } }\n") }, "does not say where the API is (servers): add base_url"},
		{"a relative address", func(c *Config) {
			c.BaseURL, c.OpenAPI = "", file(t, "openapi: 3.1.0\nservers: [{ url: /v1 }]\npaths: { /x: { get: {} } }\n")
		}, `(servers: "/v1" is relative, and the document is not at a URL): add base_url`},
	} {
		api := newAPI(t)
		c := api.pets()
		c.Auth = Auth{}
		test.change(&c)
		a := adapter(t, c, Options{})
		if err := a.Begin(nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Begin = %v, want %s", test.name, err, test.want)
		}
		if a.Check() == nil {
			t.Errorf("%s: it can be used", test.name)
		}
		_, err := a.Open(t.Context(), &bridge.Caller{}, nil)
		known, ok := errors.AsType[*bridge.Error](err)
		if opens := strings.Contains(test.want, "base_url"); opens != (err == nil) || !opens && (!ok || !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), test.want) || strings.Contains(known.Public, "yaml")) {
			t.Errorf("%s: Open = %v, want ErrUnavailable with %s", test.name, err, test.want)
		}
	}
}

// Until a document can be read, the previous adapter's edition is used, even after that adapter and
// other borrowers are closed.
func TestBeginBorrows(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	text, err := os.ReadFile("testdata/pets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := &sites{texts: map[string]string{"/pets.yaml": string(text)}}
	site := httptest.NewServer(s)
	defer site.Close()
	c := api.pets()
	c.OpenAPI = site.URL + "/pets.yaml"
	first := adapter(t, c, Options{})
	if err := first.Begin(nil); err != nil {
		t.Fatal(err)
	}
	connect(t, first, nil)

	s.set("/pets.yaml", "")
	c.Tools = []toolset.Entry{{Key: "getPet", Name: "onePet"}}
	log := &adaptertest.Log{}
	next := adapter(t, c, Options{Log: log.Logger()})
	other := adapter(t, c, Options{})
	for a, before := range map[*Adapter]*Adapter{next: first, other: first} {
		if err := a.Begin(before); err != nil || a.Check() != nil {
			t.Fatalf("Begin = %v, Check = %v", err, a.Check())
		}
	}
	last := adapter(t, c, Options{})
	if err := last.Begin(other); err != nil {
		t.Fatal(err)
	}
	first.Close()
	other.Close()
	eventually(t, "the complaint", func() bool { return times(log, "the API stays as it was") == 1 })
	if at, why := next.Behind(); why == nil || at.IsZero() || !strings.Contains(why.Error(), "503") {
		t.Errorf("Behind = %v, %v", why, at)
	}
	client := &adaptertest.Client{}
	up := connect(t, next, client)
	if text, bad := call(t, up, "getPet", `{"id":1}`); bad {
		t.Errorf("getPet: %s", text)
	}
	begun := slowCall(t, api, up)

	s.set("/pets.yaml", string(text))
	client.WaitSaid(t, 1)
	if got := names(t, up); !strings.Contains(got, "onePet") {
		t.Errorf("tools = %s", got)
	}
	if _, why := next.Behind(); why != nil {
		t.Errorf("Behind = %v", why)
	}
	last.Close()
	close(api.slow)
	if got := <-begun; !strings.Contains(got, "at last") {
		t.Errorf("the call in flight: %s", got)
	}
}

// A catalogue from a webhook passes to the next adapter, unless it no longer fits.
func TestBeginCarries(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := Config{BaseURL: api.URL + "/a", Catalog: Catalog{Webhook: true, Secret: secret}}
	a := adapter(t, c, Options{})
	if err := a.Begin(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Renew(t.Context(), []byte(strings.ReplaceAll(flows("one"), "POST ", "POST "+c.BaseURL))); err != nil {
		t.Fatal(err)
	}
	log := &adaptertest.Log{}
	c.Attempts = 2
	for base, want := range map[string]string{"/a": "one", "/b": ""} {
		c.BaseURL = api.URL + base
		next := adapter(t, c, Options{Log: log.Logger()})
		if err := next.Begin(a); err != nil {
			t.Fatal(err)
		}
		if got := names(t, connect(t, next, nil)); got != want {
			t.Errorf("%s: tools = %q, want %q", base, got, want)
		}
	}
	if times(log, "no longer fits the configuration: send it again") != 1 {
		t.Error("nothing was said of what does not fit")
	}
}

// A setting that names a temporarily unreadable part of a document is no fault.
func TestBeginPartAway(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	site := httptest.NewServer(&sites{})
	defer site.Close()
	c := api.pets()
	c.Auth, c.Trusted = Auth{}, []string{site.URL}
	c.OpenAPI = file(t, "openapi: 3.1.0\npaths:\n  /pets: { get: { operationId: listPets } }\n  /pets/{id}: { $ref: '"+site.URL+"/pet.yaml' }\n")
	c.Tools = []toolset.Entry{{Key: "getPet", Name: "onePet"}}
	log := &adaptertest.Log{}
	a := adapter(t, c, Options{Log: log.Logger()})
	if err := a.Begin(nil); err != nil {
		t.Fatal(err)
	}
	if got := names(t, connect(t, a, nil)); !strings.Contains(got, "listPets") || times(log, "no longer fits the document") == 0 {
		t.Errorf("tools = %s", got)
	}
}

// A catalogue file may appear after the start: another container of the pod writes it.
func TestBeginBeforeCatalog(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := api.pets()
	c.Catalog.File = filepath.Join(t.TempDir(), "tools.json")
	log := &adaptertest.Log{}
	a := adapter(t, c, Options{Log: log.Logger()})
	if err := a.Begin(nil); err != nil || a.Check() == nil {
		t.Fatalf("Begin = %v, Check = %v", err, a.Check())
	}
	eventually(t, "the warning", func() bool { return times(log, "cannot be used yet") == 1 })
	text := `{"tools":[{"name":"later","request":"GET /later","inputSchema":{"type":"object"}}]}`
	if err := os.WriteFile(c.Catalog.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(t, connect(t, a, nil)); !strings.Contains(got, "later") {
		t.Errorf("tools = %s", got)
	}
}
