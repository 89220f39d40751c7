package era_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
)

// D1.2, R-166, R-006.
func TestLegacyCapabilities(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"roots":{},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"experimental":{"a":{"n":1.0}}}`, ""},
		{`{"elicitation":{}}`, ""},
		{`{"roots":{"listChanged":true}}`, `{"roots":{}}`},
		{`{"tasks":{"list":{}},"vendor":[1]}`, `{"vendor":[1]}`},
		{`{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}}`, `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}}`},
		{`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{`{"extensions":{}}`, ""},
		{`{"roots":true,"sampling":null,"elicitation":{"url":true,"form":{}},"experimental":{"a":1,"b":{}}}`, `{"elicitation":{"form":{}},"experimental":{"b":{}}}`},
		{`{"elicitation":{"url":true}}`, `{}`}, // {} would mean forms
		{`[]`, `{}`},
		{``, `{}`},
	} {
		becomes(t, "legacy", tc.in, tc.want, era.LegacyCapabilities)
	}
}

// D2.3, R-166, R-006.
func TestModernCapabilities(t *testing.T) {
	const all = `{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"tasks":{},"experimental":{"a":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{}},"vendor":1}`
	for _, tc := range []struct{ in, revision, want string }{
		{all, v4, `{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"experimental":{"a":{}},"extensions":{"x/y":{}},"vendor":1}`},
		{all, v3, `{"roots":{},"sampling":{},"elicitation":{"form":{}},"experimental":{"a":{}},"extensions":{"x/y":{}},"vendor":1}`},
		{all, v2, `{"roots":{},"sampling":{},"experimental":{"a":{}},"extensions":{"x/y":{}},"vendor":1}`},
		{`{"elicitation":{}}`, v4, `{"elicitation":{}}`},
		{`{"elicitation":{}}`, v1, `{}`},
		{`{"elicitation":{"url":{}}}`, v3, `{"elicitation":{}}`}, // these can only mean forms
		{`null`, v4, `{}`},
	} {
		becomes(t, tc.revision, tc.in, tc.want, func(in []byte) []byte { return era.ModernCapabilities(in, tc.revision) })
	}
}

func TestCanonicalCapabilities(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{ "b" : [ 1.0 , {"y":1,"x":2} ],
			"a":{"d":null,"c":"\u0041\/"} }`, `{"a":{"c":"A/","d":null},"b":[1.0,{"x":2,"y":1}]}`},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`}, // readers differ on what this means
		{`{"b":1,"a":2,"b":0}`, `{"a":2,"b":1,"b":0}`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567890}`},
		{`{}`, `{}`},
		{``, `{}`},
		{`7`, `{}`},
	} {
		becomes(t, "once", tc.in, tc.want, era.CanonicalCapabilities)
		becomes(t, "twice", tc.want, tc.want, era.CanonicalCapabilities)
	}
	deep := `{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`
	becomes(t, "too deep", deep, deep, era.CanonicalCapabilities)
}

// D1.3, R-006.
func TestDiscoverResult(t *testing.T) {
	const initialize = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true,"x":1},"resources":{"subscribe":true,"listChanged":true},"logging":{},"tasks":{"list":{}},"experimental":{"listChanged":true}},"serverInfo":{"name":"s","version":"1","n":1.0},"instructions":"Do \u003c","vendor":12345678901234567890,"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"else"}}}`
	for _, tc := range []struct {
		in        string
		subscribe bool
		want      string
	}{
		{initialize, true, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true,"x":1},"resources":{"subscribe":true,"listChanged":true},"logging":{},"experimental":{"listChanged":true}},"instructions":"Do \u003c","vendor":12345678901234567890,"ttlMs":0,"cacheScope":"private","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","n":1.0}}}`},
		{initialize, false, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"x":1},"resources":{},"logging":{},"experimental":{"listChanged":true}},"instructions":"Do \u003c","vendor":12345678901234567890,"ttlMs":0,"cacheScope":"private","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","n":1.0}}}`},
		{`{"capabilities":[],"serverInfo":"s","instructions":5,"resultType":"task","ttlMs":9}`, true, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`},
	} {
		becomes(t, fmt.Sprint("subscribe ", tc.subscribe), tc.in, tc.want, func(in []byte) []byte { return era.DiscoverResult(in, []string{v5, v4}, tc.subscribe) })
	}
}

// D2.2, R-166, R-006.
func TestInitializeResult(t *testing.T) {
	const discover = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{}}},"instructions":"Do","ttlMs":60000,"cacheScope":"private","vendor":1.0,"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s","title":"S","version":"1","description":"d","icons":[],"websiteUrl":"w"}}}`
	for _, tc := range []struct{ in, revision, want string }{
		{discover, v4, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"extensions":{"x/y":{}}},"serverInfo":{"name":"s","title":"S","version":"1","description":"d","icons":[],"websiteUrl":"w"},"instructions":"Do","vendor":1.0,"_meta":{"a":1}}`},
		{discover, v3, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"extensions":{"x/y":{}}},"serverInfo":{"name":"s","title":"S","version":"1"},"instructions":"Do","vendor":1.0,"_meta":{"a":1}}`},
		{discover, v1, `{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true},"extensions":{"x/y":{}}},"serverInfo":{"name":"s","version":"1"},"instructions":"Do","vendor":1.0,"_meta":{"a":1}}`},
		{`{"capabilities":{}}`, v4, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"configured","version":"unknown"}}`},
		{`{"serverInfo":{"name":"draft","version":"0"}}`, v4, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"draft","version":"0"}}`},
		{`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":7}}}`, v4, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"configured","version":"unknown"}}`},
		{`[]`, v4, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"configured","version":"unknown"}}`},
	} {
		becomes(t, tc.revision, tc.in, tc.want, func(in []byte) []byte { return era.InitializeResult(in, tc.revision, "configured") })
	}
}
