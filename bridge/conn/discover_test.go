package conn

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// what each answer to server/discover says of the server, and how often the server is asked.
func TestDiscover(t *testing.T) {
	const modern = `"result":{"supportedVersions":["2024-11-05","2026-07-28"],"capabilities":{}}`
	refuses := func(supported string) string {
		return `"error":{"code":-32022,"message":"no","data":{"supported":` + supported + `}}`
	}
	for _, tc := range []struct {
		name    string
		answers []string
		want    Verdict
		err     string
	}{
		{"modern", []string{modern}, SaysModern, ""},
		{"modern when asked again", []string{refuses(`["2026-07-28"]`), modern}, SaysModern, ""},
		{"modern, and refuses again", []string{refuses(`["2026-07-28"]`), refuses(`["2026-07-28"]`)}, SaysOther, `"2026-07-28"`},
		{"legacy", []string{refuses(`["2025-11-25","2024-11-05"]`)}, SaysLegacy, ""},
		{"legacy in a result", []string{`"result":{"supportedVersions":["2025-11-25"]}`}, SaysLegacy, ""},
		{"unknown revisions", []string{refuses(`["2031-01-01"]`)}, SaysOther, `"2031-01-01"`},
		{"another error that names ours", []string{`"error":{"code":-32601,"message":"no","data":{"supported":["2026-07-28"]}}`}, NoVerdict, ""},
		{"no revisions", []string{`"result":{}`}, NoVerdict, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wireOf{}
				c := New("fake", w, &asker{}, Timeouts{})
				done := make(chan error, 1)
				var g *bridge.Greeting
				var got Verdict
				go func() {
					var err error
					g, got, err = Discover(t.Context(), c, bridgetest.Caller(era.LatestModern, "", `{}`))
					done <- err
				}()
				for i, answer := range tc.answers {
					bridgetest.Contains(t, w.take(), `"method":"server/discover"`)
					deliver(t, c, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, i+1, answer))
				}
				if more := w.take(); more != "" {
					t.Fatalf("the server was asked again: %s", more)
				}
				if err := <-done; got != tc.want || (g != nil) != (tc.want == SaysModern) || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("verdict %d, greeting %v, error %v; want %d and an error with %q", got, g, err, tc.want, tc.err)
				}
			})
		})
	}
}

// A request to a modern server has what its headers need; one to a legacy server has not.
func TestNamed(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := &wireOf{fail: bridge.ErrUnsent}
			c := New("fake", w, &asker{}, Timeouts{})
			c.modern = modern
			<-ask(t, c, t.Context(), nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			if w.name != map[bool]string{true: "x"}[modern] {
				t.Errorf("modern %t: the name is %q", modern, w.name)
			}
		})
	}
}
