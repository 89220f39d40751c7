package main

import (
	"errors"
	"os"
	"testing"
)

func TestServed(t *testing.T) {
	want, err := made("../assets")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		if served, err := os.ReadFile("../served/" + name); err != nil || string(served) != text {
			t.Errorf("served/%s does not belong to the sources (%v): run go generate ./bridge/server/internal/admin/console", name, err)
		}
	}
}

// Modules that cannot be joined are a fault, rather than a page that does not work.
func TestJoined(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string // the script, or the fault
	}{
		{"one", map[string]string{"a.js": "/** @param {import('./b.js').X} x */\nexport function f(x) {\n  return x;\n}\n"}, "const modules = {};\n{\n\nfunction f(x) {\n  return x;\n}\nmodules['a.js'] = { f };\n}\n"},
		{"each once, those it imports first", map[string]string{"a.js": "import { x as y } from './b.js';\nimport './c.js';\ny();\n", "b.js": "import './c.js';\nexport const x = 1;\n", "c.js": "export class C {}\nexport async function* g() {}\n"},
			"const modules = {};\n{\nclass C {}\nasync function* g() {}\nmodules['c.js'] = { C, g };\n}\n{\nconst x = 1;\nmodules['b.js'] = { x };\n}\n{\nconst { x: y } = modules['b.js'];\ny();\nmodules['a.js'] = {  };\n}\n"},
		{"a circle", map[string]string{"a.js": "import './b.js';\n", "b.js": "import './a.js';\n"}, "a.js imports itself through other modules"},
		{"a default", map[string]string{"a.js": "export default 1;\n"}, "a.js: cannot join this: export default 1;"},
		{"another form of import", map[string]string{"a.js": "import * as b from './b.js';\n"}, "a.js: cannot join this: import * as b from './b.js';"},
		{"an import on demand", map[string]string{"a.js": "const b = await import('./b.js');\n"}, "a.js: cannot join this: import('./b.js');"},
		{"a module that is not there", map[string]string{"a.js": "import './b.js';\n"}, "no b.js"},
	} {
		got, err := joined("a.js", func(name string) (string, error) {
			text, ok := tc.files[name]
			if !ok {
				return "", errors.New("no " + name)
			}
			return text, nil
		})
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: joined = %q, want %q", tc.name, got, tc.want)
		}
	}
}
