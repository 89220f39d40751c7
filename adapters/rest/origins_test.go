package rest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// site serves a document at /openapi.json, tokens at /token, and an API everywhere else. It records
// the credentials that it receives.
type site struct {
	*httptest.Server
	mu    sync.Mutex // guards the rest
	doc   string
	calls int
	shown []string
}

func newSite(t *testing.T) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		for _, text := range []string{r.Header.Get("X-Key"), r.Header.Get("X-Own"), r.Header.Get("X-Entry"), r.Header.Get("X-Tenant"), r.Header.Get("Authorization"), string(body)} {
			if text != "" {
				s.shown = append(s.shown, text)
			}
		}
		switch r.URL.Path {
		case "/openapi.json", "/part.json":
			_, _ = io.WriteString(w, s.doc)
		case "/token":
			_, _ = io.WriteString(w, `{"access_token":"the-access-token","token_type":"bearer"}`)
		default:
			s.calls++
			_, _ = io.WriteString(w, `{"ok":true}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) says(doc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doc = doc
}

// got returns the number of calls, and the credentials, since the last time.
func (s *site) got() (calls int, shown string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, shown = s.calls, strings.Join(s.shown, ", ")
	s.calls, s.shown = 0, nil
	return calls, shown
}

const (
	keyed  = `"components": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}}, "security": [{"k": []}]`
	simple = `"responses": {"200": {"description": "ok"}}`
)

// document makes a document whose operation a has servers.
func describing(servers, inPath, inOperation string) string {
	return `{"openapi": "3.1.0", ` + servers + keyed + `, "paths": {"/a": {` + inPath + `"get": {"operationId": "a", ` + inOperation + simple + `}}}}`
}

func servers(url string) string { return `"servers": [{"url": "` + url + `"}], ` }

// A document at a URL may name any server. Configured values go only to the document's own server,
// and to those that the configuration names. A document on the internet may also name servers on this
// machine and in private networks: no call goes there unless the operator names them too.
func TestStrangers(t *testing.T) {
	t.Parallel()
	key := Auth{Schemes: map[string]wire.Credential{"k": {Key: "secret-key-1"}}}
	const open = `"security": [], `
	free := func(servers string) string { return describing(servers, "", open) }
	trust := func(c *Config, other string) { c.Trusted = []string{other} }
	base := func(c *Config, other string) { c.BaseURL = other }
	for _, test := range []struct {
		name   string
		abroad bool // the document is on the internet
		doc    func(own, other string) string
		change func(c *Config, other string)
		from   http.Header
		goes   string // "own", "other", or "" for a call that is refused
		shown  string
	}{
		{name: "its own server", doc: func(own, _ string) string { return describing(servers(own), "", "") }, goes: "own", shown: "secret-key-1"},
		{name: "a relative one", doc: func(_, _ string) string { return describing(servers("/v1"), "", "") }, goes: "own", shown: "secret-key-1"},
		{name: "none", doc: func(_, _ string) string { return describing("", "", "") }, goes: "own", shown: "secret-key-1"},
		{name: "another", doc: func(_, other string) string { return describing(servers(other), "", "") }},
		{name: "another of the path", doc: func(own, other string) string { return describing(servers(own), servers(other), "") }},
		{name: "another of the operation", doc: func(own, other string) string { return describing(servers(own), "", servers(other)) }},
		{name: "its own of the operation", doc: func(own, other string) string { return describing(servers(other), "", servers(own)) }, goes: "own", shown: "secret-key-1"},
		{name: "another by a variable", doc: func(_, other string) string {
			return describing(`"servers": [{"url": "{where}/v1", "variables": {"where": {"default": "`+other+`"}}}], `, "", "")
		}},
		{name: "Swagger 2.0", doc: func(_, other string) string {
			return `{"swagger": "2.0", "host": "` + strings.TrimPrefix(other, "http://") + `", "schemes": ["http"],
				"securityDefinitions": {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}, "security": [{"k": []}], "paths": {"/a": {"get": {"operationId": "a", ` + simple + `}}}}`
		}},
		{name: "trusted", doc: func(_, other string) string { return describing(servers(other), "", "") }, change: trust, goes: "other", shown: "secret-key-1"},
		{name: "base_url", doc: func(own, _ string) string { return describing(servers(own), "", "") }, change: base, goes: "other", shown: "secret-key-1"},
		{name: "nothing is needed", doc: func(_, other string) string { return free(servers(other)) }, goes: "other"},
		{name: "headers", doc: func(_, other string) string { return free(servers(other)) },
			change: func(c *Config, _ string) { c.Headers = map[string]string{"X-Own": "secret-header"} }},
		{name: "an entry's header", doc: func(_, other string) string { return free(servers(other)) },
			change: func(c *Config, _ string) {
				c.Tools = []toolset.Entry{{Key: "a", Headers: map[string]string{"X-Entry": "secret-entry"}}}
			}},
		{name: "a tool of one's own", doc: func(_, other string) string { return free(servers(other)) },
			change: func(c *Config, _ string) {
				c.Expose = []string{"none"}
				c.Tools = []toolset.Entry{{Key: "a", Request: "GET /a?code=secret-code"}}
			}},
		{name: "forwarded headers", doc: func(_, other string) string { return free(servers(other)) },
			from: http.Header{"X-Tenant": {"callers-secret"}}},
		{name: "a variable of the configuration", doc: func(_, other string) string {
			return describing(`"servers": [{"url": "`+other+`/{id}", "variables": {"id": {"default": "1"}}}], `, "", open)
		}, change: func(c *Config, _ string) { c.Variables = map[string]string{"id": "secret-id"} }},
		{name: "abroad, another", abroad: true, doc: func(_, other string) string { return free(servers(other)) }},
		{name: "abroad, another of the operation", abroad: true, doc: func(own, other string) string { return describing(servers(own), "", open+servers(other)) }},
		{name: "abroad, by a name", abroad: true, doc: func(_, other string) string {
			return free(servers(strings.Replace(other, "127.0.0.1", "localhost", 1)))
		}},
		{name: "abroad, in another form", abroad: true, doc: func(_, other string) string {
			return free(servers(strings.Replace(other, "127.0.0.1", "[::ffff:127.0.0.1]", 1)))
		}},
		{name: "abroad, by a variable", abroad: true, doc: func(_, other string) string {
			return free(`"servers": [{"url": "{where}/v1", "variables": {"where": {"default": "` + other + `"}}}], `)
		}},
		{name: "abroad, private", abroad: true, doc: func(string, string) string { return free(servers("http://10.0.0.1:1")) }},
		{name: "abroad, its own, by a name that has moved", abroad: true, doc: func(string, string) string { return free(servers("/v1")) }},
		{name: "abroad, none", abroad: true, doc: func(string, string) string { return free("") }},
		{name: "abroad, trusted", abroad: true, doc: func(_, other string) string { return free(servers(other)) }, change: trust, goes: "other"},
		{name: "abroad, base_url", abroad: true, doc: func(string, string) string { return free(servers("http://10.0.0.1:1")) }, change: base, goes: "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			own, other := newSite(t), newSite(t)
			own.says(test.doc(own.URL, other.URL))
			c := Config{OpenAPI: own.URL + "/openapi.json", Auth: key}
			if test.change != nil {
				test.change(&c, other.URL)
			}
			log := &adaptertest.Log{}
			a := adapter(t, c, Options{Log: log.Logger(), Forward: []string{"X-Tenant"}})
			if test.abroad {
				readAbroad(t, a)
			}
			text, wrong := call(t, connect(t, a, nil, test.from), "a", "{}")
			ownCalls, ownShown := own.got()
			otherCalls, otherShown := other.got()
			got := map[bool]string{true: "own"}[ownCalls > 0] + map[bool]string{true: "other"}[otherCalls > 0]
			if got != test.goes || wrong != (test.goes == "") || ownShown+otherShown != test.shown {
				t.Errorf("the call went to %q with %q, %q: %s", got, ownShown, otherShown, text)
			}
			if test.goes == "" && (!strings.Contains(text, "base_url or trusted") || strings.Contains(text, "secret")) {
				t.Errorf("the call is refused with %s", text)
			}
			if said := times(log, "do not go there"); !test.abroad && said != map[bool]int{true: 1}[test.goes == "" && test.from == nil] {
				t.Errorf("the log says it %d times: %s", said, log)
			}
			refused := strings.Contains(text, "on this machine or in a private network, and was itself read on the internet")
			if warned := times(log, "names a server where it may send no calls") > 0; test.abroad && (refused == (test.goes != "") || warned != refused) {
				t.Errorf("the call is refused with %s; the log is %s", text, log)
			}
		})
	}
}

// A document in a file may refer to a URL; the operator did not write that part either.
func TestStrangerByReference(t *testing.T) {
	t.Parallel()
	own, friend, other := newSite(t), newSite(t), newSite(t)
	friend.says(`{"servers": [{"url": "` + other.URL + `"}], "get": {"operationId": "b", ` + simple + `}}`)
	doc := `{"openapi": "3.1.0", ` + servers(own.URL) + keyed + `, "paths": {"/a": {"get": {"operationId": "a", ` + simple + `}}, "/b": {"$ref": "` + friend.URL + `/part.json"}}}`
	a := adapter(t, Config{OpenAPI: file(t, doc), Trusted: []string{friend.URL}, Auth: Auth{Schemes: map[string]wire.Credential{"k": {Key: "secret-key-1"}}}}, Options{})
	up := connect(t, a, nil)
	if text, wrong := call(t, up, "a", "{}"); wrong {
		t.Errorf("a: %s", text)
	}
	if text, wrong := call(t, up, "b", "{}"); !wrong || !strings.Contains(text, "base_url or trusted") {
		t.Errorf("b: %s", text)
	}
	calls, shown := other.got()
	if _, ok := own.got(); ok != "secret-key-1" || calls > 0 || shown != "" {
		t.Errorf("the server of the file was shown %q; the other one got %d calls and was shown %q", ok, calls, shown)
	}
}

// If a document at a URL is read again with another server, nothing changes: neither who gets
// credentials and tokens, nor who gets arguments.
func TestMovesAway(t *testing.T) {
	t.Parallel()
	const oauth = `"components": {"securitySchemes": {"k": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": %q, "scopes": {}}}}}}, `
	for name, doc := range map[string]struct {
		auth          Auth
		before, after func(own, other string) string
	}{
		"server": {Auth{Schemes: map[string]wire.Credential{"k": {Key: "secret-key-1"}}},
			func(own, _ string) string { return describing(servers(own), "", "") },
			func(_, other string) string { return describing(servers(other), "", "") }},
		"server without credentials": {Auth{},
			func(own, _ string) string { return describing(servers(own), "", "") },
			func(_, other string) string { return describing(servers(other), "", "") }},
		"server of an operation": {Auth{Schemes: map[string]wire.Credential{"k": {Key: "secret-key-1"}}},
			func(own, _ string) string { return describing(servers(own), "", "") },
			func(own, other string) string { return describing(servers(own), "", servers(other)) }},
		"token address": {Auth{Schemes: map[string]wire.Credential{"k": {Client: &wire.Client{ID: "id", Secret: "secret-of-client"}}}},
			func(own, _ string) string {
				return strings.Replace(describing(servers(own), "", ""), keyed, fmt.Sprintf(oauth, own+"/token")+`"security": [{"k": []}]`, 1)
			},
			func(own, other string) string {
				return strings.Replace(describing(servers(own), "", ""), keyed, fmt.Sprintf(oauth, other+"/token")+`"security": [{"k": []}]`, 1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, other := newSite(t), newSite(t)
			own.says(doc.before(own.URL, other.URL))
			log := &adaptertest.Log{}
			a := adapter(t, Config{OpenAPI: own.URL + "/openapi.json", Auth: doc.auth}, Options{Log: log.Logger()})
			up := connect(t, a, nil)
			if text, wrong := call(t, up, "a", "{}"); wrong {
				t.Fatalf("before: %s", text)
			}
			_, before := own.got()
			own.says(doc.after(own.URL, other.URL))
			if _, err := a.Renew(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the document names another server than before: "+other.URL) || times(log, err.Error()) != 1 {
				t.Errorf("Renew = %v", err)
			}
			if text, wrong := call(t, up, "a", "{}"); wrong {
				t.Errorf("after: %s", text)
			}
			calls, shown := own.got()
			if calls != 1 || before != "" && !strings.Contains(before, shown) {
				t.Errorf("after, the API got %d calls, and was shown %q, before %q", calls, shown, before)
			}
			if calls, shown := other.got(); calls > 0 || shown != "" {
				t.Errorf("the other server got %d calls, and was shown %q", calls, shown)
			}
			if n := times(log, "tools made"); n != 1 {
				t.Errorf("tools were made %d times", n)
			}
		})
	}
}

// The client's secret does not go to a token endpoint from a document at a URL, unless the
// configuration allows it.
func TestTokenStrangers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		change  func(c *Config, cl *wire.Client, other string)
		refused bool
	}{
		{"as the document has it", func(*Config, *wire.Client, string) {}, true},
		{"token_url", func(_ *Config, cl *wire.Client, other string) { cl.TokenURL = other + "/token" }, false},
		{"trusted", func(c *Config, _ *wire.Client, other string) { c.Trusted = []string{other} }, false},
	} {
		own, other := newSite(t), newSite(t)
		own.says(`{"openapi": "3.1.0", ` + servers(own.URL) + `"components": {"securitySchemes": {"k": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "` + other.URL + `/token", "scopes": {}}}}}},
			"paths": {"/a": {"get": {"operationId": "a", "security": [{"k": []}], ` + simple + `}}, "/b": {"get": {"operationId": "b", ` + simple + `}}}}`)
		client := &wire.Client{ID: "id", Secret: "secret-of-client"}
		c := Config{OpenAPI: own.URL + "/openapi.json", Auth: Auth{Schemes: map[string]wire.Credential{"k": {Client: client}}}}
		test.change(&c, client, other.URL)
		log := &adaptertest.Log{}
		up := connect(t, adapter(t, c, Options{Log: log.Logger()}), nil)
		text, wrong := call(t, up, "a", "{}")
		if _, shown := other.got(); wrong != test.refused || test.refused != (shown == "") || test.refused != (times(log, "the client's secret does not go there") == 1) {
			t.Errorf("%s: the other server was shown %q: %s; the log: %s", test.name, shown, text, log)
		}
		if test.refused && !strings.Contains(text, "token_url or trusted") {
			t.Errorf("%s: %s", test.name, text)
		}
		if text, wrong := call(t, up, "b", "{}"); wrong {
			t.Errorf("%s: a call that needs no token: %s", test.name, text)
		}
	}
}

// The bridge never uses a link-local address from a document at a URL, with or without credentials.
func TestLinkLocalStrangers(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "2852039166", "0xa9fea9fe", "0xa9.0xfe.43518"} {
		own := newSite(t)
		own.says(describing(servers("http://"+host), "", `"security": [], `))
		up := connect(t, adapter(t, Config{OpenAPI: own.URL + "/openapi.json"}, Options{Timeout: time.Second}), nil)
		if text, wrong := call(t, up, "a", "{}"); !wrong || !strings.Contains(text, "which is no address for an API") {
			t.Errorf("%s: %s", host, text)
		}
	}
}
