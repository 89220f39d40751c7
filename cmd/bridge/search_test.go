package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
)

// In mode search operations are called by their names, though no list has them.
func TestCallSearched(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"asked":%q}`, r.URL.String())
	}))
	defer api.Close()
	path := pets(t, api.URL, "      mode: search\n")
	if code, stdout, stderr := in(t, "check", "-c", path); code != 0 || !strings.Contains(stdout, "3 tools in the list; 2 operations, found by search (mode: search; ") {
		t.Errorf("check: exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
	}
	code, stdout, stderr := in(t, "call", "-c", path, "pets", "getPet", "id=7", "fields=a", "fields=b")
	if code != 0 || !strings.Contains(stdout, "/pets/7?fields=a&fields=b") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
	}
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown", []string{"getPets"}, `There is no operation "getPets". There is getPet.`},
		{"wrong arguments", []string{"getPet", "id=x"}, "id"},
	} {
		code, stdout, stderr := in(t, append([]string{"call", "-c", path, "pets"}, test.args...)...)
		if code != exit.Usage || !strings.Contains(stderr, test.want) || strings.Contains(stdout, "asked") {
			t.Errorf("%s: exit code %d, stdout\n%s\nstderr\n%s\nwant %s", test.name, code, stdout, stderr, test.want)
		}
	}
}
