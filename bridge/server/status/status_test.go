package status

import (
	"strings"
	"testing"
)

// A long error keeps its end, where a program says why it gave up.
func TestLine(t *testing.T) {
	const end = "RuntimeError: missing API key\nFOO_KEY is set here and was not passed"
	for _, frames := range []int{0, 8, 200} {
		s := "server py: its process has ended (exit status 1)\nits last lines on stderr:\n" + strings.Repeat("  File \"/srv/py/server.py\", line 7, in main\n", frames) + end
		got := line(s)
		if !strings.HasPrefix(got, "server py: its process has ended") || !strings.HasSuffix(got, strings.ReplaceAll(end, "\n", " ")) || len([]rune(got)) > maxLine+3 {
			t.Errorf("%d frames: %q", frames, got)
		}
	}
}
