package status

import (
	"strings"
	"testing"
	"time"
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

// The text names the servers that lists of clients lack.
func TestMissing(t *testing.T) {
	b := &Bridge{Ready: true, Servers: []Server{{Name: "files"}, {Name: "tickets", Lacking: 3, LackingWhy: "it is still starting"}, {Name: "crm", Lacking: 1, LackingWhy: "its process\nhas ended"}}}
	const want = "\nmissing from the lists of clients: tickets (3 clients: it is still starting), crm (1 client: its process has ended)\n"
	if text := b.Text(time.Now()); !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	b.Servers = b.Servers[:1]
	if text := b.Text(time.Now()); strings.Contains(text, "missing") {
		t.Error(text)
	}
}
