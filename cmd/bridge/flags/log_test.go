package flags_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
)

// What servers say cannot act on the terminal on which the log is read, and is all
// there.
func TestLogVisible(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := (&flags.Log{Level: "info", Format: format}).Logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		const evil = "boom\x1b\u009b\u202e\u2066\u061c"
		log.With("server", evil).Info(evil, "text", evil)
		if got := out.String(); strings.ContainsAny(got, "\x1b\u009b\u202e\u2066\u061c") || strings.Count(got, `\u009b\u202e\u2066\u061c`) != 3 {
			t.Errorf("%s: %q", format, got)
		}
	}
}
