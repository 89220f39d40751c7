package inspect_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/config"
)

// On a terminal, a start and a stop that take long are told, with what the server
// writes to its standard error meanwhile; --quiet tells nothing.
func TestSlowServer(t *testing.T) {
	for _, test := range []struct {
		name     string
		terminal bool
		pause    time.Duration
		args     []string
		stderr   string
	}{
		{"slow", true, 10 * time.Second, nil, "starting cat…\n  downloading ␛[2J\n  installed\nthe server has no tools\nstopping the server…\n"},
		{"quick", true, time.Millisecond, nil, "the server has no tools\n"},
		{"quiet", true, 10 * time.Second, []string{"-q"}, "the server has no tools\n"},
		{"no terminal", false, 10 * time.Second, nil, "the server has no tools\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
				plain := inMemory(t, s)
				r := newRig(t, func(c *config.Config, name string, log *slog.Logger) (*inspect.Link, error) {
					log = log.With("server", name)
					log.Info("stderr", "text", "downloading \x1b[2J")
					time.Sleep(test.pause)
					log.Info("stderr", "text", "installed")
					log.Info("child started")
					link, err := plain(c, name, log)
					if err == nil {
						end := link.Close
						link.Close = func(hurry bool) { time.Sleep(test.pause); end(hurry) }
					}
					return link, err
				})
				r.terminal = test.terminal
				_, _, stderr := r.run(append([]string{"tools"}, test.args...)...)
				if got := strings.ReplaceAll(stderr, "\r", ""); got != test.stderr {
					t.Errorf("stderr\n%s\nwant\n%s", got, test.stderr)
				}
			})
		})
	}
}
