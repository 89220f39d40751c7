package sign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test program itself is a hook if HOOK names one.
func TestMain(m *testing.M) {
	switch os.Getenv("HOOK") {
	case "":
		goleak.VerifyTestMain(m)
	case "good":
		asked, _ := io.ReadAll(os.Stdin)
		fmt.Printf(`{"headers":{"X-Asked":%q,"X-Other":%q}}`, asked, os.Getenv("HOOK_TEST_OTHER"))
	case "fails":
		fmt.Fprint(os.Stderr, "there is no key\n")
		os.Exit(3)
	case "endless":
		for {
			if _, err := os.Stdout.Write(make([]byte, 4096)); err != nil {
				os.Exit(1)
			}
		}
	case "silent":
		select {}
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "HOOK=child")
		_ = child.Run()
	case "child":
		if conn, err := net.Dial("tcp", os.Getenv("HOOK_TEST_ADDRESS")); err == nil {
			_, _ = io.Copy(io.Discard, conn) // ends when the test does
		}
	}
}

func hooked(t *testing.T, kind string, timeout time.Duration) (*http.Request, error) {
	t.Helper()
	s, err := Hook{Command: []string{os.Args[0]}, Env: map[string]string{"HOOK": kind}, Timeout: timeout}.Signer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	u, _ := url.Parse("https://api.example.com/a?b=c")
	r := &http.Request{Method: "POST", URL: u, Host: u.Host, Header: http.Header{"X-A": {"1", "2"}}}
	return r, s.Sign(t.Context(), r, []byte("body"))
}

// A program gets the request to sign, and nothing of the bridge's environment.
func TestCommand(t *testing.T) {
	t.Setenv("HOOK_TEST_OTHER", "a secret of the bridge")
	r, err := hooked(t, "good", time.Hour)
	want := `{"method":"POST","url":"https://api.example.com/a?b=c","headers":{"X-A":"1, 2"},"body_sha256":"230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"}`
	if got := r.Header.Get("X-Asked"); err != nil || got != want || r.Header.Get("X-Other") != "" {
		t.Errorf("headers %v, error %v, want %s", r.Header, err, want)
	}
}

func TestCommandFaults(t *testing.T) {
	for _, test := range []struct {
		kind         string
		timeout      time.Duration
		text, detail string
	}{
		{"fails", time.Hour, "failed: exit status 3", "there is no key"},
		{"endless", time.Hour, "answers more than 65536 bytes", ""},
		{"silent", 50 * time.Millisecond, "did not answer within 50ms", ""},
	} {
		r, err := hooked(t, test.kind, test.timeout)
		wrong, ok := errors.AsType[*HookError](err)
		if !ok || wrong.Text != test.text || wrong.Detail != test.detail || len(r.Header) != 1 {
			t.Errorf("%s: %#v, headers %v, want %q and %q", test.kind, err, r.Header, test.text, test.detail)
		}
	}
	s, _ := Hook{Command: []string{"./no-such-program"}}.Signer()
	u, _ := url.Parse("https://api.example.com")
	r := &http.Request{URL: u, Header: http.Header{}}
	if wrong, ok := errors.AsType[*HookError](s.Sign(t.Context(), r, nil)); !ok || wrong.Text != "could not be run" || !strings.Contains(wrong.Detail, "no-such-program") {
		t.Errorf("a program that is not there: %v", wrong)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sign(ctx, r, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is taken back: %v", err)
	}
}
