package wire

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// signing is a hook with a new signature each time.
func signing(t *testing.T) *recorder {
	var n atomic.Int32
	return newRecorder(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"headers":{"X-Signature":"sig-%d"}}`, n.Add(1))
	})
}

// Each attempt, and each redirect on the same server, is signed anew. Nothing is signed for another
// server.
func TestSignedAnew(t *testing.T) {
	other := newRecorder(t, nil)
	hook := signing(t)
	api := newRecorder(t, nil)
	api.then = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/busy" && r.Header.Get("X-Signature") == "sig-1":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/here?a=1", http.StatusTemporaryRedirect)
		case r.URL.Path == "/away":
			http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
		case r.URL.Path == "/done":
			http.Redirect(w, r, "/result", http.StatusSeeOther)
		}
	}
	s := newSource(t, Options{BaseURL: api.URL, Default: &Credential{Hook: &sign.Hook{URL: hook.URL, Headers: map[string]string{"X-Key": "hook-key-1234"}}}})
	body := func(method, path string) *openapi.Tool {
		return with(tool(method, path), &openapi.MediaType{Type: httpio.JSON})
	}
	for _, test := range []struct {
		tool *openapi.Tool
		want string // lines of what the API gets, and of what the hook is told
	}{
		{tool("GET", "/busy"), "GET /busy sig-1; GET /busy sig-2 | GET /busy; GET /busy"},
		{body("PUT", "/moved"), "PUT /moved sig-3; PUT /here?a=1 sig-4 | PUT /moved; PUT /here?a=1"},
		{body("POST", "/done"), "POST /done sig-5; GET /result sig-6 | POST /done; GET /result"},
		{body("PUT", "/away"), "PUT /away sig-7 | PUT /away"},
	} {
		call(t, s, &Call{Tool: test.tool, Args: []byte(`{"body":{"a":1}}`)})
		var got, asked []string
		for _, r := range api.requests() {
			got = append(got, r.method+" "+r.uri+" "+r.header.Get("X-Signature"))
		}
		for _, r := range hook.requests() {
			told := gjson.ParseBytes(r.body)
			asked = append(asked, told.Get("method").Str+" "+strings.TrimPrefix(told.Get("url").Str, api.URL))
			sum := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
			if told.Get("method").Str != "GET" {
				sum = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
			}
			if told.Get("body_sha256").Str != sum || r.header.Get("X-Key") != "hook-key-1234" || !told.Get("headers.User-Agent").Exists() {
				t.Errorf("the hook gets %s with %v", r.body, r.header)
			}
		}
		if line := strings.Join(got, "; ") + " | " + strings.Join(asked, "; "); line != test.want {
			t.Errorf("%s: %s\nwant %s", test.tool.Operation.Path, line, test.want)
		}
	}
	if got := other.requests(); len(got) > 0 {
		t.Errorf("another server gets %v", got)
	}
}

// TestHookFaults lists forbidden answers of a hook, and what clients see of them.
func TestHookFaults(t *testing.T) {
	for _, test := range []struct {
		name, answer string
		status       int
		want         string
	}{
		{"a reserved header", `{"headers":{"host":"evil"}}`, 200, "gives the header host, which it may not set"},
		{"a cookie", `{"headers":{"Cookie":"a=b"}}`, 200, "gives the header Cookie, which it may not set"},
		{"a line break", `{"headers":{"X-A":"a\r\nX-B: c"}}`, 200, "gives the header X-A a line break"},
		{"no name", `{"headers":{"X A":"a"}}`, 200, "not the name of a header"},
		{"no object", `[]`, 200, "does not answer with JSON such as"},
		{"no headers", `{}`, 200, "does not answer with JSON such as"},
		{"too much", `{"headers":{"X-A":"` + strings.Repeat("a", 70_000) + `"}}`, 200, "answers more than 65536 bytes"},
		{"too many", `{"headers":{` + strings.TrimSuffix(strings.Repeat(`"X-%d":"",`, 51), ",") + `}}`, 200, "gives more than 50 headers"},
		{"a status", `hook-secret`, 500, "answers with the status 500"},
		{"a redirect", ``, 302, "could not be asked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := test.answer
			if test.name == "too many" {
				n := make([]any, 51)
				for i := range n {
					n[i] = i
				}
				answer = fmt.Sprintf(answer, n...)
			}
			hook := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://192.0.2.1/")
				w.WriteHeader(test.status)
				fmt.Fprint(w, answer)
			})
			api := newRecorder(t, nil)
			var log strings.Builder
			s := newSource(t, Options{BaseURL: api.URL, Default: &Credential{Hook: &sign.Hook{URL: hook.URL}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			got := call(t, s, &Call{Tool: tool("GET", "/x")})
			if !strings.HasPrefix(said(got), "GET /x was not sent: the hook that signs requests "+test.want) && !strings.Contains(said(got), test.want) || !got.Get("isError").Bool() || strings.Contains(said(got)+log.String(), "hook-secret") {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
			if sent := api.requests(); len(sent) > 0 {
				t.Errorf("the API gets %v", sent)
			}
		})
	}
}

// A program's error is logged without values from its environment, which answers may contain.
func TestHookEnvironment(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	api := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "of eu-central-1") })
	hook := &sign.Hook{Command: []string{"sh", "-c", `test "$FAILS" || { echo '{"headers":{}}'; exit; }; echo "bad: $SEED, $SEED-long, $REGION" >&2; exit 3`}, Timeout: time.Minute,
		Env: map[string]string{"SEED": "0123456789", "LONG": "0123456789-long", "REGION": "eu-central-1"}}
	var log strings.Builder
	s := newSource(t, Options{BaseURL: api.URL, Default: &Credential{Hook: hook}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); got != "of eu-central-1" {
		t.Errorf("got %s", got)
	}
	hook.Env["FAILS"] = "1"
	if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); !strings.Contains(got, "failed: exit status 3") || !strings.Contains(log.String(), `said="bad: ***, ***, ***"`) {
		t.Errorf("got %s, log\n%s", got, log.String())
	}
}

// A token from a hook is masked everywhere.
func TestHookToken(t *testing.T) {
	hook := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"headers":{"Authorization":"Bearer minted-token","X-Date":"20260131T120000Z"}}`)
	})
	api := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+" at "+r.Header.Get("X-Date"))
	})
	s := newSource(t, Options{BaseURL: api.URL, Default: &Credential{Hook: &sign.Hook{URL: hook.URL}}})
	if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); got != "*** at 20260131T120000Z" {
		t.Errorf("got %s", got)
	}
}

// AWS's signature is sent and masked in plans, and shows nothing of the keys.
func TestAWSCredential(t *testing.T) {
	api := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the-secret-key and the-session-token") })
	s := newSource(t, Options{BaseURL: api.URL, Forward: []string{"X-Tenant"}, Default: &Credential{AWS: &sign.AWS{Region: "eu-west-1", Service: "execute-api", AccessKey: "AKID", SecretKey: "the-secret-key", SessionToken: "the-session-token"}}})
	c := &Call{Tool: tool("GET", "/x"), Header: http.Header{"X-Tenant": {"blue"}}}
	if got := said(call(t, s, c)); got != "*** and ***" {
		t.Errorf("got %s", got)
	}
	r := api.requests()[0]
	if !regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=AKID/\d{8}/eu-west-1/execute-api/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}$`).MatchString(r.header.Get("Authorization")) || r.header.Get("X-Amz-Security-Token") != "the-session-token" || r.header.Get("X-Tenant") != "blue" {
		t.Errorf("headers are %v", r.header)
	}
	p, err := s.Plan(c)
	if err != nil || !strings.Contains(p.String(), "Authorization: AWS4-HMAC-SHA256 ***\n") || !strings.Contains(p.String(), "X-Amz-Date: ***\n") || strings.Contains(p.String(), "the-s") {
		t.Errorf("plan %v:\n%s", err, p)
	}
}
