package config

import "testing"

// What is said of an argument beside its type holds, wherever the type stands.
func TestRestArgOrder(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{`{ type: integer, minimum: 1, maximum: 9 }`, `{"type":"integer","minimum":1,"maximum":9}`},
		{`{ minimum: 1, type: integer, maximum: 9 }`, `{"minimum":1,"type":"integer","maximum":9}`},
		{`{ maxItems: 3, type: "[string]" }`, `{"maxItems":3,"type":"array","items":{"type":"string"}}`},
		{`{ minimum: 1, type: any }`, `{"minimum":1}`},
		{`{ type: any }`, `{}`},
	} {
		c, err := Parse("bridge.yaml", []byte("servers:\n  x:\n    rest:\n      base_url: http://localhost\n      tools:\n        t: { request: GET /, args: { n: "+test.arg+" } }\n"), none)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(c.Servers[0].Rest.Tools[0].Args[0].Schema); got != test.want {
			t.Errorf("%s: schema = %s, want %s", test.arg, got, test.want)
		}
	}
}
