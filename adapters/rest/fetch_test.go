package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
)

// A document in a file may refer to files in the folders of trusted, and to no others.
func TestTrustedFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"api/main.yaml":       "openapi: 3.0.0\nservers: [{url: https://api.example.com}]\npaths: {/a: {get: {parameters: [{$ref: ../common/p.yaml}]}}}\n",
		"common/p.yaml":       "{name: p, in: query, schema: {$ref: types/t.yaml}}\n",
		"common/types/t.yaml": "type: integer\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		trusted []string
		want    string // lost operations and warnings
	}{
		{nil, `[GET /a] [main.yaml:3: $ref "../common/p.yaml": is outside of the document's folder: add its own folder, or one above that, to trusted main.yaml:3: GET /a is left out: a parameter of it cannot be read]`},
		{[]string{filepath.Join(dir, "common"), "https://uploads.example.com"}, "[] []"},
		{[]string{dir}, "[] []"},
		{[]string{filepath.Join(dir, "common", "types")}, `[GET /a] [main.yaml:3: $ref "../common/p.yaml": is outside of the document's folder: add its own folder, or one above that, to trusted main.yaml:3: GET /a is left out: a parameter of it cannot be read]`},
	} {
		c := Config{OpenAPI: filepath.Join(dir, "api", "main.yaml"), Trusted: test.trusted}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		report, err := c.Inspect(t.Context(), "api", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(report.Lost, " ", report.Warnings); got != test.want {
			t.Errorf("trusted %q:\n got %s\nwant %s", test.trusted, got, test.want)
		}
	}
}

// openapi_headers go where the document is read, to the parts at its origin, and nowhere else: not to trusted origins, not
// to where a redirect leads, and not to the API. Headers of the catalogue go to the catalogue only.
func TestHeadersOfDocument(t *testing.T) {
	var mu sync.Mutex
	var got []string // paths with a key
	var other string // an origin that is trusted
	serve := func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("X-Key") + r.Header.Get("X-Tools"); key != "" {
			mu.Lock()
			got = append(got, r.Host+r.URL.Path+" "+key)
			mu.Unlock()
		} else if strings.HasPrefix(r.URL.Path, "/docs/") {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/tools":
			fmt.Fprint(w, flows("tool"))
		case "/docs/api.yaml":
			fmt.Fprintf(w, "openapi: 3.1.0\npaths: {/a: {get: {operationId: a}}, /p: {$ref: p.yaml}, /q: {$ref: '%s/q.yaml'}, /r: {$ref: away.yaml}}\n", other)
		case "/docs/p.yaml", "/q.yaml":
			fmt.Fprintf(w, "get: {operationId: %c}\n", r.URL.Path[len(r.URL.Path)-6])
		case "/docs/away.yaml":
			http.Redirect(w, r, other+"/q.yaml", http.StatusFound)
		}
	}
	docs, trusted := httptest.NewServer(http.HandlerFunc(serve)), httptest.NewServer(http.HandlerFunc(serve))
	defer docs.Close()
	defer trusted.Close()
	other = trusted.URL
	c := Config{OpenAPI: docs.URL + "/docs/api.yaml", BaseURL: docs.URL, Trusted: []string{trusted.URL}, OpenAPIHeaders: map[string]string{"X-Key": "s3cret-of-docs"},
		Catalog: Catalog{URL: docs.URL + "/tools", Headers: map[string]string{"X-Tools": "s3cret-of-tools"}}}
	up := connect(t, adapter(t, c, Options{}), nil)
	if tools := names(t, up); tools != "a p q tool" {
		t.Errorf("the tools are %s", tools)
	}
	call(t, up, "a", "{}")
	call(t, up, "tool", "{}")
	host := strings.TrimPrefix(docs.URL, "http://")
	if want := fmt.Sprint([]string{host + "/docs/api.yaml s3cret-of-docs", host + "/docs/p.yaml s3cret-of-docs", host + "/docs/away.yaml s3cret-of-docs", host + "/tools s3cret-of-tools"}); fmt.Sprint(got) != want {
		t.Errorf("the key went to %v, want %s", got, want)
	}

	c.OpenAPIHeaders = nil
	log := &adaptertest.Log{}
	a := adapter(t, c, Options{Log: log.Logger()})
	if err := a.follower.Now(); err == nil || !strings.Contains(err.Error(), "answered 401 Unauthorized: if it wants a credential, set it in openapi_headers") {
		t.Errorf("without a key: %v", err)
	}
	// A password in the URL is not sent, not even to find out what is there.
	c.OpenAPI = strings.Replace(c.OpenAPI, "//", "//me:s3cret-of-docs@", 1)
	if _, err := c.DetectURL(t.Context()); err == nil || !strings.Contains(err.Error(), "openapi_headers") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("with a password: %v", err)
	}
}

// A variable that is in no address of the document, or stands behind base_url, is warned of. An operation
// whose own server has no address is lost. Values of variables count, declared or not.
func TestVariables(t *testing.T) {
	const declared = `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"servers":[{"url":"https://{region}.example.com","variables":{"region":{"default":"eu"}}}],
		"paths":{"/a":{"get":{"responses":{}},"servers":[{"url":"https://{zone}.example.com","variables":{"zone":{"default":"x"}}}]}}}`
	const undeclared = "openapi: 3.0.0\nservers: [{url: 'https://{r}.example.com'}]\npaths:\n  /a: {get: {operationId: a}}\n  /b: {get: {operationId: b, servers: [{url: 'https://{s}.example.com'}]}}\n"
	for _, test := range []struct {
		doc, base string
		variables map[string]string
		want      string // tools, lost operations and warnings
	}{
		{declared, "", map[string]string{"region": "us", "zone": "y", "regoin": "us"}, "1 [] [api.yaml: variables: regoin: the addresses of the document have no such variable"},
		{declared, "https://example.com", map[string]string{"region": "us"}, "1 [] [api.yaml: variables: region has no effect: base_url says where the API is"},
		{undeclared, "", map[string]string{"r": "eu"}, "1 [GET /b] [api.yaml:5: GET /b is left out: the server's address has a variable without a value in the document: set variables: { s: … }, or base_url]"},
		{undeclared, "", map[string]string{"r": "eu", "s": "us"}, "2 [] []"},
	} {
		c := Config{OpenAPI: file(t, test.doc), BaseURL: test.base, Variables: test.variables}
		r, err := c.Inspect(t.Context(), "api", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Tools, r.Lost, r.Warnings); !strings.HasPrefix(got, test.want) || len(r.Warnings) > 1 {
			t.Errorf("%v: %s, want %s", test.variables, got, test.want)
		}
	}
}
