package metatools

import "testing"

func TestSignature(t *testing.T) {
	for _, tc := range []struct{ name, item, want string }{
		{"read", `{"description":"Reads.","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"}},"required":["path"]}}`,
			"/** Reads. */\ntools.read(args: { path: string; head?: number }): Promise<unknown>"},
		{"read-text", `{"inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"text":{"type":["string","null"]}},"required":["text"]}}`,
			`tools["read-text"](args: { [name: string]: unknown }): Promise<{ text: string | null }>`},
		{"x", `{"description":"ends */ here","inputSchema":{"properties":{"a-b":{"enum":["x",1]},"c":{"type":"array","items":{"anyOf":[{"type":"number"},{"const":"y"}]}},"d":{"type":"array","items":{"type":"boolean"}},"e":{}}}}`,
			"/** ends * / here */\ntools.x(args: { \"a-b\"?: \"x\" | 1; c?: (number | \"y\")[]; d?: boolean[]; e?: unknown }): Promise<unknown>"},
		{"deep", `{"inputSchema":{"properties":{"a":{"properties":{"a":{"properties":{"a":{"properties":{"a":{"properties":{"a":{"properties":{"a":{"properties":{"a":{"type":"string"}}}}}}}}}}}}}}}}}`,
			"tools.deep(args: { a?: { a?: { a?: { a?: { a?: { a?: { a?: unknown } } } } } } }): Promise<unknown>"},
		{"none", `{}`, "tools.none(args: unknown): Promise<unknown>"},
	} {
		one := tool{name: tc.name, item: []byte(tc.item)}
		if got := string(one.signature(true)); got != tc.want {
			t.Errorf("%s\n%s, want\n%s", tc.item, got, tc.want)
		}
	}
	one := tool{name: "read", item: []byte(`{"description":"Reads.","inputSchema":{"type":"object"}}`)}
	if got := string(one.signature(false)); got != "/** Reads. */\ntools.read(args: object): Promise<unknown>" {
		t.Errorf("without types: %s", got)
	}
}
