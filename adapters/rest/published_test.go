package rest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge"
)

// secret is the secret of the webhooks.
const secret = "a-secret-of-the-hook"

// flows is a catalogue with tools of these names.
func flows(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf(`{"name":%q,"request":"POST /webhook/%s","inputSchema":{"type":"object","properties":{"x":{"type":"integer"}}}}`, name, name))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// A tool of a catalogue makes the same requests as one of the configuration. Its schema in lists is
// the catalogue's.
func TestPublishedRequests(t *testing.T) {
	api := newAPI(t)
	c := Config{BaseURL: api.URL, Auth: Auth{Default: &wire.Credential{Key: "top-secret-key", Header: "X-Api-Key"}}}
	for _, test := range []struct{ name, tool, args, want string }{
		{"body", `"request":"POST /w","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"string"}}}`, `{"b":"x","a":1.50}`, `POST /w X-Api-Key=top-secret-key {"a":1.50,"b":"x"}`},
		{"below", `"request":"POST ` + api.URL + `/w/{a}","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a"]}`, `{"a":"y/x","b":null}`, `POST /w/y%2Fx X-Api-Key=top-secret-key {"b":null}`},
		{"query", `"request":"GET /w","inputSchema":{"properties":{"q":{"type":"string"},"n":{"type":"integer"}}}`, `{"n":"7","q":"a&b"}`, `GET /w?q=a%26b&n=7 X-Api-Key=top-secret-key`},
		{"templates", `"request":"POST /w{?q}","body":{"deep":["{a}"],"text":"{a}!"},"headers":{"X-Trace":"t-{a}"},"inputSchema":{"properties":{"a":{"type":"integer"},"q":{"type":"string"}},"required":["a"]}`, `{"a":7}`,
			`POST /w X-Api-Key=top-secret-key X-Trace=t-7 {"deep":[7],"text":"7!"}`},
		{"open", `"request":"POST /w/{id}","headers":{"X-Trace":"{t}"},"inputSchema":{"properties":{"id":{"type":"string"},"a":{},"t":{"type":"string"}},"required":["id"],"additionalProperties":true}`, `{"z":{"y":1.0},"id":"i","t":"q","a":12345678901234567890}`,
			`POST /w/i X-Api-Key=top-secret-key X-Trace=q {"z":{"y":1.0},"a":12345678901234567890}`},
		{"open and nothing else", `"request":"POST /w","inputSchema":{"additionalProperties":{"type":"string"}}`, `{"z":"1"}`, `POST /w X-Api-Key=top-secret-key {"z":"1"}`},
		{"open query", `"request":"GET /w/{id}?fixed=1","headers":{"X-Trace":"{t}"},"inputSchema":{"properties":{"id":{"type":"string"},"t":{"type":"string"}},"required":["id"],"additionalProperties":true}`, `{"name":"A & b","id":"i","t":"q","n":1.50}`,
			`GET /w/i?fixed=1&name=A%20%26%20b&n=1.50 X-Api-Key=top-secret-key X-Trace=q`},
		{"open query and nothing else", `"request":"DELETE /w","inputSchema":{"additionalProperties":true}`, `{"a":true,":body":"x"}`, `DELETE /w?a=true&%3Abody=x X-Api-Key=top-secret-key`},
		{"open query, unused", `"request":"GET /w","inputSchema":{"additionalProperties":true}`, `{}`, `GET /w X-Api-Key=top-secret-key`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.Catalog.File = file(t, `[{"name":"t",`+test.tool+`}]`)
			up := connect(t, adapter(t, c, Options{}), nil)
			if text, isError := call(t, up, "t", test.args); isError || api.last(t) != test.want {
				t.Errorf("request = %s\nwant      %s\n(%s)", api.last(t), test.want, text)
			}
		})
	}
	c.Catalog.File = file(t, `[{"name":"t","request":"GET /w?fixed=1","inputSchema":{"additionalProperties":true}}]`)
	if text, isError := call(t, connect(t, adapter(t, c, Options{}), nil), "t", `{"fixed":2}`); !isError || !strings.Contains(text, "must not have a member called fixed") {
		t.Errorf("an argument in place of what the catalogue has fixed: %s", text)
	}
	c.Catalog.File = file(t, `[{"name":"t","title":"T","description":"D","request":"GET /w","annotations":{"readOnlyHint":false,"openWorldHint":false},`+
		`"inputSchema":{"$defs":{"n":{"type":"integer"}},"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"additionalProperties":false}}]`)
	up := connect(t, adapter(t, c, Options{}), nil)
	want := `[{"name":"t","title":"T","description":"D","inputSchema":{"$defs":{"n":{"type":"integer"}},"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"_meta":{"mcp-bridge/request":"GET /w"}}]`
	if got := ask(t, up, "tools/list", "{}").Get("tools").Raw; got != want {
		t.Errorf("tools = %s\nwant    %s", got, want)
	}
	before := api.count()
	if text, isError := call(t, up, "t", `{"n":"x","m":1}`); !isError || !strings.Contains(text, "n: must be an integer") || !strings.Contains(text, "m: ") || api.count() > before {
		t.Errorf("wrong arguments: %s", text)
	}
}

// An unusable tool is omitted with a warning; if all are unusable, that is an error.
func TestPublishedWarnings(t *testing.T) {
	c := Config{BaseURL: "https://flows.example.com/v1", Tools: []toolset.Entry{{Key: "mine", Request: "GET /mine"}}}
	s, err := c.settings("flows", &Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ tool, want string }{
		{`{"name":"x"}`, `tool 2 ("x"): request is missing`},
		{`{"name":"mine","request":"GET /"}`, `tool "mine": another tool already has the name`},
		{`{"name":"a b","request":"GET /"}`, `tool "a b": a tool's name has 1 to 64`},
		{`{"name":"x","request":"FETCH /"}`, `tool "x": request must begin with one of`},
		{`{"name":"x","request":"GET /{id}"}`, `tool "x": request has {id}, and no argument is called that`},
		{`{"name":"x","request":"POST /","body":{"a":"{b}"}}`, `tool "x": body has {b}`},
		{`{"name":"x","request":"POST /","headers":{"Host":"evil"}}`, `tool "x": headers: Host is set by the bridge itself`},
		{`{"name":"x","request":"GET https://flows.example.com/v2/x"}`, `tool "x": its request is not below base_url`},
		{`{"name":"x","request":"GET https://flows.example.com/v11/x"}`, `tool "x": its request is not below base_url`},
		{`{"name":"x","request":"GET /../v2/x"}`, `tool "x": its request has . or .. as a part of its path`},
		{`{"name":"x","request":"GET https://flows.example.com/v1/a%2f%2E./x?y"}`, `tool "x": its request has . or .. as a part of its path`},
		{`{"name":"x","request":"GET /","error":{"when":"@tostr|@tostr"}}`, `tool "x": the path "@tostr|@tostr" has the modifier @tostr, which a catalogue cannot use`},
		{`{"name":"x","request":"GET /","result":"{a:@pretty}"}`, `tool "x": the path "{a:@pretty}" has the modifier @pretty`},
		{`{"name":"x","request":"GET http://169.254.169.254/latest"}`, `tool "x": its request is not below base_url`},
	} {
		m, err := s.Make(nil, []byte(`[{"name":"ok","request":"GET https://flows.example.com/v1?q"},`+test.tool+`]`))
		if err != nil || len(m.Tools) != 2 || len(m.Warnings) != 1 || !strings.HasPrefix(m.Warnings[0].String(), "catalogue: "+test.want) {
			t.Errorf("%s: %+v, %v", test.tool, m, err)
		}
	}
	if err := s.CheckCatalog([]byte(`[{"name":"x","request":"GET http://localhost/"}]`)); err == nil || !strings.Contains(err.Error(), "the catalogue has no usable tool: tool \"x\"") {
		t.Errorf("only a bad one: %v", err)
	}
}

func TestCatalogSettings(t *testing.T) {
	for _, test := range []struct {
		c    Catalog
		want string
	}{
		{Catalog{File: "x"}, ""},
		{Catalog{URL: "https://a.example/t", Headers: map[string]string{"Authorization": "Bearer x"}, Webhook: true, Secret: secret}, ""},
		{Catalog{URL: "ftp://x"}, "url must be a URL"},
		{Catalog{URL: "https://u:p@a.example/t"}, "without a password"},
		{Catalog{File: "x", URL: "https://a.example/t"}, "file and url are both set"},
		{Catalog{File: "x", Headers: map[string]string{"A": "b"}}, "headers are of no use without url"},
		{Catalog{URL: "https://a.example", Headers: map[string]string{"Host": "b"}}, "headers: Host is set by the bridge itself"},
		{Catalog{Webhook: true}, "secret must have at least 16 characters"},
		{Catalog{Webhook: true, Secret: "short-secret"}, "secret must have at least 16 characters"},
		{Catalog{File: "x", Secret: secret}, "secret is of no use without webhook"},
		{Catalog{Retry: true}, "retry is of no use without file, url or webhook"},
		{Catalog{File: "x", Retry: true}, ""},
	} {
		err := test.c.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v, want %q", test.c, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "short-secret") {
			t.Errorf("the secret is shown: %v", err)
		}
	}
}

// The catalogue from a webhook is used until the next one. A call ends on the edition that it began
// on.
func TestCatalogBrought(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	client := &adaptertest.Client{}
	c := Config{BaseURL: api.URL, Catalog: Catalog{Webhook: true, Secret: secret}, Tools: []toolset.Entry{{Key: "slow", Request: "GET /slow"}}}
	a := adapter(t, c, Options{})
	if n, err := a.Renew(t.Context(), []byte(flows("one"))); n != 2 || err != nil { // before anybody was connected
		t.Fatalf("Renew = %d, %v", n, err)
	}
	up := connect(t, a, client)
	begun := slowCall(t, api, up)
	for _, test := range []struct {
		body, names string
		told        int
		bad         bool
	}{
		{flows("two"), "slow two", 1, false},
		{"\n" + flows("two"), "slow two", 1, false},
		{`{"tools":[{"name":"x"}]}`, "slow two", 1, true},
		{"not a catalogue", "slow two", 1, true},
		{" \n", "slow two", 1, false}, // only a notice of changes
		{`{"tools":[]}`, "slow", 2, false},
		{flows("one", "slow"), "slow one", 3, false},
		{flows("slow"), "slow one", 3, true}, // the only name is taken
	} {
		_, err := a.Renew(t.Context(), []byte(test.body))
		if _, bad := errors.AsType[*CatalogError](err); bad != test.bad || !bad && err != nil {
			t.Errorf("Renew(%q) = %v", test.body, err)
		}
		if got := names(t, up); got != test.names {
			t.Errorf("after %q: tools = %s, want %s", test.body, got, test.names)
		}
		if got := client.Said(); len(got) != test.told {
			t.Errorf("after %q: the client was told %s", test.body, got)
		}
	}
	close(api.slow)
	if got := <-begun; !strings.Contains(got, "at last") {
		t.Errorf("the call that was under way: %s", got)
	}
	a.Close()
	if _, err := a.Renew(t.Context(), nil); !errors.Is(err, bridge.ErrUnavailable) {
		t.Errorf("Renew of what is closed: %v", err)
	}
}

// The log says why a tool of a catalogue is missing, once for each change: its writer sees nothing else.
func TestCatalogComplaints(t *testing.T) {
	log := &adaptertest.Log{}
	c := Config{BaseURL: newAPI(t).URL, Catalog: Catalog{Webhook: true, Secret: secret}}
	a := adapter(t, c, Options{Log: log.Logger()}) // from info
	for i, test := range []struct {
		more string
		want int // lines so far
	}{
		{"", 0}, {`,{"name":"","request":"GET /x"}`, 1}, {`,{"name":"","request":"GET /x"}`, 1}, {`,{"name":"x","request":"GET,POST /x"}`, 2}, {"", 2}, {`,{"name":"","request":"GET /x"}`, 3},
	} {
		if _, err := a.Renew(t.Context(), fmt.Appendf(nil, `{"tools":[{"name":"one","request":"GET /one"}%s]}`, test.more)); err != nil {
			t.Fatal(err)
		}
		if got := times(log, "level=WARN"); got != test.want {
			t.Errorf("catalogue %d: %d warnings, want %d:\n%s", i, got, test.want, log)
		}
	}
	for _, reason := range []string{"name is missing", "request must begin with one of"} {
		if times(log, reason) == 0 {
			t.Errorf("the log lacks %q", reason)
		}
	}
}

// Close does not hang during a webhook's request.
func TestCatalogClosed(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 9)
	hold := make(chan struct{})
	var first sync.Once
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fast := false
		first.Do(func() { fast = true })
		if !fast {
			asked <- struct{}{}
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, flows("one"))
	}))
	defer site.Close()
	defer close(hold)
	a := adapter(t, Config{BaseURL: site.URL, Refresh: time.Hour, Catalog: Catalog{URL: site.URL, Webhook: true, Secret: secret}}, Options{})
	errs := make(chan error)
	for range 2 { // one is in progress, and one waits
		go func() {
			_, err := a.Renew(t.Context(), nil)
			errs <- err
		}()
	}
	<-asked
	a.Close()
	for range 2 {
		if err := <-errs; err == nil {
			t.Error("a wish was granted after the end")
		}
	}
}

// check reads a catalogue in a file, and reports that it does not read others.
func TestInspectCatalog(t *testing.T) {
	c := Config{BaseURL: "http://localhost", Catalog: Catalog{File: file(t, `[{"name":"ok","request":"GET /"},{"name":"x"}]`)}}
	r, err := c.Inspect(t.Context(), "flows", Options{})
	if err != nil || r.Tools != 1 || r.CatalogUnread || len(r.Warnings) != 1 {
		t.Errorf("Inspect = %+v, %v", r, err)
	}
	c.Catalog = Catalog{URL: "http://localhost:1/tools"}
	if r, err = c.Inspect(t.Context(), "flows", Options{}); err != nil || !r.CatalogUnread || r.Unread {
		t.Errorf("Inspect = %+v, %v", r, err)
	}
	c.Catalog = Catalog{File: "/nowhere/tools.json"} // a start waits for this file
	if r, err = c.Inspect(t.Context(), "flows", Options{}); err != nil || !r.CatalogUnread || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Text, "waits for /nowhere/tools.json") {
		t.Errorf("Inspect of a missing file = %+v, %v", r, err)
	}
	c.Catalog = Catalog{File: file(t, strings.Repeat(" ", document.MaxCatalog+1))}
	if _, err = c.Inspect(t.Context(), "flows", Options{}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large one: %v", err)
	}
}
