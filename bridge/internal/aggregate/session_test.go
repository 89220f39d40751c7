package aggregate_test

import (
	"errors"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Resources are found by what is listed, by templates, and by their scheme.
func TestResources(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
		"resources/list": `{"resources":[{"uri":"a:1"},{"uri":"both:1"}]}`, "resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"t:{x}"}]}`,
		"resources/read": `{"by":"one"}`, "resources/read a:hidden": `{"code":-32002,"message":"not here"}`,
		"resources/subscribe": `{}`, "resources/unsubscribe": `{}`, "completion/complete": `{"by":"one"}`,
	})
	two := newActor(t, "two", era.Rev20251125, caps, map[string]string{
		"resources/list": `{"resources":[{"uri":"both:1"},{"uri":"a:2"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`,
		"resources/read": `{"by":"two"}`, "completion/complete": `{"by":"two"}`,
	})
	s := play(t, true, one, two)
	for _, tc := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"a:2"}`, `"by":"two"`},
		{"resources/read", `{"uri":"both:1"}`, `"by":"one"`},
		{"resources/read", `{"uri":"t:5"}`, `"by":"one"`},
		{"resources/read", `{"uri":"a:hidden"}`, `"by":"two"`},
		{"resources/read", `{"uri":"z:1"}`, `"code":-32002`},
		{"resources/list", `{}`, `"resources":[{"uri":"a:1"},{"uri":"both:1"},{"uri":"a:2"}]`},
		{"resources/subscribe", `{"uri":"z:1"}`, `"code":-32002`},
		{"resources/unsubscribe", `{"uri":"z:1"}`, `"result":{}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"two__p"},"argument":{}}`, `"by":"two"`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"t:{x}"},"argument":{}}`, `"by":"one"`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"z:{x}"},"argument":{}}`, `"code":-32002`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"nobody"},"argument":{}}`, `"code":-32602`},
		{"completion/complete", `{"ref":5}`, `"code":-32602`},
	} {
		bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
	}
	one.set(func() { one.fails = bridge.ErrUnavailable })
	bridgetest.Contains(t, s.call("resources/read", `{"uri":"a:unlisted"}`), `"by":"two"`)
	bridgetest.Contains(t, s.call("resources/read", `{"uri":"t:6"}`), `error: unavailable`)
	s.end()
}

// The server that lists a resource gets its URI in any spelling that a client's URL type makes of it, as the client wrote
// it; so does the one whose template expands to it.
func TestSpellings(t *testing.T) {
	for _, session := range []bool{true, false} {
		broad := newActor(t, "broad", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"http://other.example.com/"}]}`, "resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"file:///{+path}"}]}`, "resources/read": `{"by":"broad"}`,
		})
		exact := newActor(t, "exact", era.Rev20251125, caps, map[string]string{
			"resources/list":           `{"resources":[{"uri":"file:///Straße/a b.txt"},{"uri":"file:///enc%2foded/%7Eme"},{"uri":"HTTP://Example.com:80"},{"uri":"note:x y"}]}`,
			"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"Note://café/{name}"},{"uriTemplate":"doc://my docs/{name}{?q*}"},{"uriTemplate":"http://Docs.example.com{/path*}"},{"uriTemplate":"http://search.example.com{?q}"},{"uriTemplate":"http://find.example.com?q={q}"}]}`,
			"resources/read":           `{"by":"exact"}`,
		})
		s := play(t, session, broad, exact)
		s.call("resources/list", `{}`)
		s.call("resources/templates/list", `{}`)
		for uri, by := range map[string]string{
			"file:///Straße/a b.txt": "exact", "file:///Stra%C3%9Fe/a%20b.txt": "exact", "FILE:///Stra%c3%9fe/./a%20b.txt": "exact",
			"file:///enc%2Foded/~me": "exact", "file:///enc/oded/~me": "broad", "http://example.com/": "exact", "note:x%20y": "exact",
			"note://caf%C3%A9/1": "exact", "note://café/ü": "exact", "doc://my%20docs/a%20b?q=1": "exact", "http://Docs.example.com/a/b": "exact",
			"http://search.example.com?q=1": "exact", "http://search.example.com/?q=1": "exact", "http://find.example.com?q=1": "exact",
			"file:///other": "broad",
		} {
			bridgetest.Contains(t, uri+s.call("resources/read", `{"uri":`+rawjson.Quote(uri)+`}`), `"by":"`+by+`"`)
		}
		bridgetest.Contains(t, exact.lines(), `Stra%C3%9Fe/a%20b.txt`)
		bridgetest.Contains(t, s.call("resources/read", `{"uri":"NOTE:unlisted"}`), `"by":"exact"`)
		s.end()
	}
}

// A session that has listed nothing finds the names of servers without a prefix.
func TestNamesUnlisted(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{}`})
	two := newActor(t, "two", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"y"}]}`, "tools/call": `{}`})
	one.Prefix, two.Prefix = "", ""
	s := play(t, true, one, two)
	s.call("tools/call", `{"name":"y"}`)
	bridgetest.Contains(t, two.lines(), `tools/call {"name":"y"}`)
	bridgetest.Lacks(t, one.lines(), "tools/call")
	s.end()
}

// The error about an unknown name has the names with prefixes, or the servers that do not work. Lists say which servers
// they lack, since when, and why.
func TestUnknown(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"},{"name":"secret"}]}`})
	two := newActor(t, "two", era.Rev20251125, caps, nil)
	two.set(func() {
		two.fails = &bridge.Error{Kind: bridge.ErrUnavailable, Public: "its process has ended", Err: errors.New("/bin/private")}
	})
	s := play(t, true, one, two)
	bridgetest.Contains(t, s.call("tools/list", `{}`), `"_meta":{"dev.mcp-bridge/missing":[{"server":"two","since":"2026-01-02T03:04:05Z","why":"its process has ended"}]}`)
	for name, want := range map[string]string{
		"x":      "Unknown tool: x: did you mean one__x? At the address of several servers, names begin with their server's prefix",
		"y":      "Unknown tool: y (these servers do not work now: two)",
		"secret": "Unknown tool: secret (these servers do not work now: two)",
	} {
		same(t, name, gjson.Get(s.call("tools/call", `{"name":"`+name+`"}`), "error.message").Str, want)
	}
	s.end()
}
