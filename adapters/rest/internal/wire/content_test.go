package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
)

// Answers as contents of resources.
func TestRead(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		kind, body, _ := strings.Cut(r.URL.Path[1:], "=")
		w.Header().Set("Content-Type", kind)
		if kind == "gone" {
			w.WriteHeader(http.StatusGone)
		}
		fmt.Fprint(w, body)
	})
	s := newSource(t, Options{BaseURL: rec.URL, Limits: Limits{Answer: 40}, Default: &Credential{Bearer: "the-secret-token"}})
	for _, test := range []struct{ answer, want string }{
		{`application/json=["a",1.50]`, `[{"uri":"u","mimeType":"application/json","text":"[\"a\",1.50]"}]`},
		{"text/csv=a,the-secret-token", `[{"uri":"u","mimeType":"text/csv","text":"a,***"}]`},
		{"image/png=x", `[{"uri":"u","mimeType":"image/png","blob":"eA=="}]`},
		{"application/pdf=x", `[{"uri":"u","mimeType":"application/pdf","blob":"eA=="}]`},
		{"application/json=[" + strings.Repeat("1,", 100) + "1]", `[{"uri":"u","mimeType":"application/json","text":"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},{"uri":"u","mimeType":"text/plain","text":"`},
		{"text/plain=", `[{"uri":"u","mimeType":"text/plain","text":""}]`},
		{"gone=", "410 Gone from GET /gone= (missing: true)"},
	} {
		got, err := s.Read(context.Background(), &Call{Tool: tool("GET", "/"+test.answer)}, "u")
		if f, ok := errors.AsType[*Failure](err); ok {
			got = fmt.Appendf(nil, "%s (missing: %t)", f.Text, f.Missing)
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), test.want) {
			t.Errorf("%.40s: %s\nwant %s", test.answer, got, test.want)
		}
	}
}

// A failure is marked as refused only if wrong arguments prevented the request.
func TestReadRefused(t *testing.T) {
	s := newSource(t, Options{Document: &openapi.Document{}})
	closed := newSource(t, Options{BaseURL: "http://127.0.0.1:1", Attempts: 1})
	needs := tool("GET", "/x/{id}", &openapi.Parameter{Name: "id", In: openapi.InPath})
	for _, test := range []struct {
		s       *Source
		args    string
		refused bool
		want    string
	}{
		{closed, `{}`, true, "id: is missing"},
		{closed, `{"id":".."}`, true, "id: must not have . or .."},
		{closed, `{"id":"1"}`, false, "GET /x/1 got no answer"},
		{s, `{"id":"1"}`, false, "the document does not say where the API is"},
	} {
		_, err := test.s.Read(t.Context(), &Call{Tool: needs, Args: []byte(test.args)}, "u")
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Refused != test.refused || !strings.Contains(f.Text, test.want) {
			t.Errorf("%s: %+v, %v; want %q, refused: %t", test.args, f, err, test.want, test.refused)
		}
	}
}
