package strict_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// Messages of adapters may contain values from the environment.
func TestRedact(t *testing.T) {
	secrets := map[string]string{
		"hunter2": "${PASSWORD}", "hunter22": "${LONGER}", "no": "${SHORT}", "a\"b\nc": "${QUOTED}",
	}
	for _, test := range []struct{ message, want string }{
		{"is hunter2: wrong", "is ${PASSWORD}: wrong"},
		{"is https://xhunter22y/", "is https://x${LONGER}y/"},
		{"is no: not a note", "is ${SHORT}: not a note"},
		{`is "a\"b\nc"`, `is "${QUOTED}"`},
		{"nothing here", "nothing here"},
	} {
		if got := strict.Redact(test.message, secrets); got != test.want {
			t.Errorf("Redact(%q) = %q, want %q", test.message, got, test.want)
		}
	}
}
