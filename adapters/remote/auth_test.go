package remote

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// counting is an Authorizer that counts refusals, and has requests sent again once.
type counting struct{ refused int }

func (c *counting) Token(context.Context) (string, error) { return "t", nil }

func (c *counting) Refused(_ context.Context, _ string, _ http.Header, _, before int) (bool, error) {
	c.refused++
	return before == 0, nil
}

// A 401 for a session that the server does not know is no word about the token: whoever
// made the request sees it whole.
func TestForgottenSession(t *testing.T) {
	const unknown = "Unauthorized: Session not found"
	for _, tc := range []struct {
		name, session, challenge, body string
		refused                        int
	}{
		{"session not found", "s1", "", unknown, 0},
		{"a long page", "s1", "", unknown + strings.Repeat(" ", 100<<10), 0},
		{"no session", "", "", unknown, 2},
		{"a token is wanted", "s1", "Bearer", unknown, 2},
		{"another reason", "s1", "Basic", "no token", 2},
	} {
		a := &counting{}
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if tc.challenge != "" {
				w.Header().Set("WWW-Authenticate", tc.challenge)
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, tc.body)
		})
		c := client(t, Config{URL: s.URL, Auth: a})
		h := http.Header{}
		if tc.session != "" {
			h.Set("Mcp-Session-Id", tc.session)
		}
		res, err := c.Do(c.Request(t.Context(), http.MethodPost, c.URL(), h, []byte("{}")))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != tc.body || res.StatusCode != http.StatusUnauthorized || a.refused != tc.refused {
			t.Errorf("%s: HTTP %d, %d bytes, %v, the authorizer heard of %d refusals, want %d", tc.name, res.StatusCode, len(body), err, a.refused, tc.refused)
		}
	}
}
