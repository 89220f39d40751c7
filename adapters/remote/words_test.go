package remote

import (
	"net/http"
	"net/url"
	"testing"
)

// A server's words reach clients without the secrets of the configured address and headers.
func TestWordsWithoutSecrets(t *testing.T) {
	u, err := url.Parse("https://tools.example.com/s/550e8400-e29b-41d4-a716-446655440000/mcp?api_key=short-1&plan=free")
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{URL: u, Header: http.Header{"Authorization": {"Bearer my-token"}}}
	for body, want := range map[string]string{
		`{"message":"the free plan has no calls left"}`:                         "the free plan has no calls left",
		`{"message":"Cannot POST /s/550e8400-e29b-41d4-a716-446655440000/mcp"}`: "Cannot POST …",
		`{"error":{"message":"the key short-1 has expired"}}`:                   "the key … has expired",
		`{"detail":"my-token may not do that"}`:                                 "… may not do that",
	} {
		if got := Words(&http.Response{StatusCode: http.StatusForbidden, Request: r}, []byte(body)); got != want {
			t.Errorf("Words of %s = %q, want %q", body, got, want)
		}
	}
}
