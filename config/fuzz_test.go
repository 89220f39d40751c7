package config

import (
	"os"
	"strings"
	"testing"
)

// FuzzParse: Parse panics for no file, and no message shows a value from the environment.
func FuzzParse(f *testing.F) {
	for _, file := range filesOf(f, "testdata/*.[gb]*.[yj]*") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("servers: { é: { rest: { openapi: { a: [é,\n b], \"c\": { } } } } }")
	f.Add("servers:\n  x:\n    rest:\n      openapi: &a\n        ? b\n        : |\n          c\n      base_url: http://x\n  y: { rest: { openapi: *a } }")
	// One value of each kind, so that some are valid.
	values := []string{"zq7Secret7qz", "79190007", "-7919007s", "7919007KiB", "https://zq7Secret7qz/zq", "127.0.0.1:zq7", "zq7\"\nSecret: [{"}
	f.Fuzz(func(t *testing.T, text string) {
		used := map[string]bool{}
		env := func(name string) (string, bool) {
			value := values[len(name)%len(values)]
			used[value] = true
			return value, name != "UNSET"
		}
		c, err := Parse("f.yaml", []byte(text), env)
		if (c == nil) == (err == nil) {
			t.Fatalf("Parse(%q) = %v, %v", text, c, err)
		}
		message := ""
		if err != nil {
			message = err.Error()
		} else {
			message = strings.Join(c.Warnings, "\n")
			if err := c.Validate(); err != nil {
				t.Fatalf("Parse(%q) accepts what Validate does not: %v", text, err)
			}
		}
		for value := range used {
			if strings.Contains(message, value) && !strings.Contains(text, value) {
				t.Fatalf("Parse(%q) shows %q: %s", text, value, message)
			}
		}
	})
}
