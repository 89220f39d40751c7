package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
)

// What docs/security.md has fail2ban look for is what the log has, in both of its
// formats, once for each address in a while. Wrong keys are in the metrics, also those that are too many.
func TestWrongKeysLogged(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```ini\n\\[Definition\\]\nfailregex = (.+?)^```$").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/security.md has no filter")
	}
	var filters []*regexp.Regexp
	for line := range strings.Lines(string(found[1])) {
		filters = append(filters, regexp.MustCompile(strings.ReplaceAll(strings.TrimSpace(line), "<HOST>", `(?P<host>[0-9A-Fa-f.:]+)`)))
	}
	shown := regexp.MustCompile("(?m)^```text\n(.*too many wrong keys.*)\n```$").FindSubmatch(page)
	if len(filters) != 2 || shown == nil {
		t.Fatalf("docs/security.md has %d expressions, and the line %q", len(filters), shown)
	}
	hosts := func(line string) (all []string) {
		for _, f := range filters {
			if m := f.FindStringSubmatch(line); m != nil {
				all = append(all, m[f.SubexpIndex("host")])
			}
		}
		return all
	}
	if got := hosts(string(shown[1])); len(got) != 1 || got[0] != "203.0.113.7" {
		t.Errorf("the line in docs/security.md shows %q", got)
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			r := newRigLog(t, slog.New(handler(&log)), private, "one")
			for range 3 * access.WrongAtOnce {
				for _, at := range []string{peer, "[2001:db8::7]:1"} {
					r.answer(from(at, loopback, "POST", "/one/mcp?token=s3cr3t-in-the-query", as(wrongKey)...))
				}
			}
			counted := fmt.Sprintf("\nmcp_bridge_auth_total{result=\"invalid\"} %d\n", 6*access.WrongAtOnce)
			if metrics := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body(); !strings.Contains(metrics, counted) {
				t.Errorf("/metrics has no %q", counted)
			}
			if text := log.String(); !strings.Contains(text, "request rejected") || strings.Contains(text, "s3cr3t") || strings.Contains(text, wrongKey) {
				t.Errorf("%s: the log has what was shown, or no rejection: %s", name, text)
			}
			// What a server writes to its stderr is in the log too.
			r.s.log.Info("stderr", "text", "\n"+`{"time":"","level":"WARN","msg":"too many wrong keys","from":"192.0.2.1"}`)
			r.s.log.Info("stderr", "text", "\n"+`time= level=WARN msg="too many wrong keys" from=192.0.2.1 `)
			var got []string
			for line := range strings.Lines(log.String()) {
				got = append(got, hosts(strings.TrimSuffix(line, "\n"))...)
				if in := hosts("host bridge[12]: " + line); len(in) != len(hosts(line)) {
					t.Errorf("%s: in a journal, %q shows %q", name, line, in)
				}
			}
			if strings.Join(got, " ") != "198.51.100.7 2001:db8::7" {
				t.Errorf("%s: the filter finds %q in\n%s", name, got, &log)
			}
		})
	}
}
