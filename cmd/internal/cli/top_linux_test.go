package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/term"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal/terminaltest"
)

// On a terminal, top draws over its last picture until q or Ctrl-C, and leaves the terminal as it was.
func TestTopLive(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, topFixture[path.Base(r.URL.Path)])
	}))
	defer s.Close()
	for _, test := range []struct {
		name, key, noColor, state string
	}{
		{"q", "q", "", "\x1b[31mcircuit open\x1b[0m"},
		{"Ctrl-C, without colors", "xx\x03", "1", " circuit open "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", test.noColor)
			t.Setenv("TERM", "xterm")
			tty := terminaltest.New(t, 80)
			before, err := term.GetState(int(tty.File.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			root := newRoot(tty.File, io.Discard, tty.File, io.Discard)
			root.SetIn(tty.File)
			root.SetArgs([]string{"top", s.URL, "--every", "500ms"})
			ended := make(chan error, 1)
			go func() { ended <- root.ExecuteContext(t.Context()) }()
			const lines = 16
			first, second := tty.Lines(lines), tty.Lines(lines)
			for _, want := range []string{"1 of 3 servers failing: tickets", "q quits", test.state} {
				if !strings.Contains(first, want) {
					t.Errorf("%q is not in\n%q", want, first)
				}
			}
			if !strings.HasPrefix(first, "\x1b[2J\x1b[H") || !strings.HasPrefix(second, "\x1b[K\x1b[J\x1b[H") || strings.Contains(first, "q quits\x1b[K") || strings.Contains(first, "\x1b[3") != (test.noColor == "") {
				t.Errorf("the pictures are\n%q\n%q", first, second)
			}
			tty.Type(test.key)
			if err := <-ended; err != nil {
				t.Errorf("top ended with %v", err)
			}
			after, err := term.GetState(int(tty.File.Fd()))
			if err != nil || !reflect.DeepEqual(before, after) {
				t.Errorf("the terminal is left in another state (error %v)", err)
			}
		})
	}
}
