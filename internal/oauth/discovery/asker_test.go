package discovery_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

func answered(t *testing.T, status int, body string) (*discovery.Token, error) {
	t.Helper()
	n := &oauthtest.Net{}
	n.Put("idp.example.com", oauthtest.Pages{"/token": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}})
	at := &discovery.Issuer{Name: "https://idp.example.com", Token: "https://idp.example.com/token"}
	return discovery.NewAsker(n).Token(t.Context(), at, &discovery.Client{ID: "app", Secret: "the&secret"}, url.Values{"refresh_token": {"r1"}})
}

// I-220: answers that have a usable token, and others.
func TestTokenAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		ok         bool
		scopes     int
		lives      time.Duration
	}{
		{"all", `{"access_token":"a","token_type":"BEARER","expires_in":60,"scope":"x y","refresh_token":"r"}`, true, 2, time.Minute},
		{"as little as there may be", `{"access_token":"a"}`, true, 0, 0},
		{"a text for a number", `{"access_token":"a","token_type":"bearer","expires_in":"60"}`, true, 0, time.Minute},
		{"a life without an end", `{"access_token":"a","expires_in":1e18}`, true, 0, 0},
		{"a life that is over", `{"access_token":"a","expires_in":-1}`, true, 0, 0},
		{"other type", `{"access_token":"a","token_type":"DPoP"}`, false, 0, 0},
		{"type is null", `{"access_token":"a","token_type":null}`, false, 0, 0},
		{"none", `{"token_type":"bearer"}`, false, 0, 0},
		{"no text", `{"access_token":7,"token_type":"bearer"}`, false, 0, 0},
		{"a line break", `{"access_token":"a\r\nX: 1","token_type":"bearer"}`, false, 0, 0},
		{"a space", `{"access_token":"a b","token_type":"bearer"}`, false, 0, 0},
		{"too long", `{"access_token":"` + strings.Repeat("a", 65<<10) + `"}`, false, 0, 0},
		{"not JSON", `{"access_token":"a"`, false, 0, 0},
		{"nested", `{"access_token":"a","x":` + nested(99) + `}`, true, 0, 0},
		{"nested too deeply", `{"access_token":"a","x":` + nested(100_000) + `}`, false, 0, 0},
		{"nested without an end", strings.Repeat("[", 1<<20), false, 0, 0},
		{"too large", strings.Repeat(" ", 1<<20) + `{"access_token":"a"}`, false, 0, 0},
	} {
		got, err := answered(t, http.StatusOK, tc.body)
		if (err == nil) != tc.ok || err == nil && (len(got.Scopes) != tc.scopes || got.Lives != tc.lives) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	for _, body := range []string{strings.Repeat("[", 1<<20), nested(101)} {
		n := &oauthtest.Net{}
		n.Put("idp.example.com", oauthtest.Pages{"/register": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }})
		_, registered := discovery.NewAsker(n).Register(t.Context(), "https://idp.example.com/register", nil)
		_, given := answered(t, http.StatusOK, body)
		for _, err := range []error{registered, given} {
			if err == nil || !strings.Contains(err.Error(), "nested deeper than 100 levels") {
				t.Errorf("nested too deeply: %v", err)
			}
		}
	}
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// I-256: only a decision of an authorization server counts as a refusal. Its text is without the secrets of the
// request.
func TestRefusedCodes(t *testing.T) {
	for _, tc := range []struct {
		status     int
		body, code string
	}{
		{400, `{"error":"invalid_grant"}`, "invalid_grant"},
		{401, `{"error":"invalid_client"}`, "invalid_client"},
		{400, `{"error":"two words"}`, ""},
		{400, `nonsense`, ""},
		{429, `{"error":"invalid_grant"}`, ""},
		{500, `{"error":"invalid_grant"}`, ""},
		{302, `{"error":"invalid_grant"}`, ""},
	} {
		if _, err := answered(t, tc.status, tc.body); err == nil || discovery.Refused(err) != tc.code {
			t.Errorf("%d %s: %v, code %q, want %q", tc.status, tc.body, err, discovery.Refused(err), tc.code)
		}
	}
	if discovery.Refused(errors.New("invalid_grant")) != "" {
		t.Error("another error counts as a refusal")
	}
	_, err := answered(t, 400, `{"error":"invalid_grant","error_description":"r1 of the&secret, or the%26secret\u001b"}`)
	if err == nil || strings.Contains(err.Error(), "r1") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the error is %q", err)
	}
}
