package flags_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// What servers say cannot act on the terminal on which the log is read, and is all
// there.
func TestLogVisible(t *testing.T) {
	for _, format := range []string{"text", "json", "for people"} {
		var out bytes.Buffer
		log := slog.New(flags.NewConsole(&out, slog.LevelInfo, false))
		if format != "for people" {
			var err error
			if log, err = (&flags.Log{Level: "info", Format: format}).Logger(&out); err != nil {
				t.Fatal(err)
			}
		}
		const evil = "boom\x1b\u009b\u202e\u2066\u061c"
		log.With("server", evil).Info(evil, "text", evil)
		if got := out.String(); strings.ContainsAny(got, "\x1b\u009b\u202e\u2066\u061c") || strings.Count(got, `\u009b\u202e\u2066\u061c`) != 3 {
			t.Errorf("%s: %q", format, got)
		}
	}
}

// The log for people has colors where it is asked to, and lines of a child as they are.
func TestConsole(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		log := slog.New(flags.NewConsole(&out, slog.LevelInfo, color)).With("server", "files")
		log.Debug("not shown")
		log.Info("stderr", "text", "npm: installing a b")
		log.WithGroup("g").Warn("server failed", "n", 1, "why", "a b", "err", errors.New("it ended\n  for a reason"))
		got := out.String()
		if strings.Contains(got, "\x1b[") != color {
			t.Errorf("color %t: %q", color, got)
		}
		want := []string{" [files] npm: installing a b\n", ` WARN  server failed server=files g.n=1 g.why="a b" g.err=it ended` + "\n  for a reason\n"}
		for i, line := range want {
			if !color && !strings.Contains(got, line) || strings.Contains(got, "not shown") {
				t.Errorf("line %d: %q lacks %q", i, got, line)
			}
		}
	}
}

// The log goes by the level of the file, unless the command line has one.
func TestLogFollows(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want bool
	}{{nil, true}, {[]string{"--log-level", "info"}, false}} {
		var l flags.Log
		c := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		l.Add(c)
		c.SetArgs(tc.args)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		log, err := l.Logger(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		sub := log.With("a", 1)
		if l.Follow("debug"); sub.Enabled(t.Context(), slog.LevelDebug) != tc.want {
			t.Errorf("%q: debug is logged: %t", tc.args, !tc.want)
		}
		if l.Follow("error"); sub.Enabled(t.Context(), slog.LevelWarn) == tc.want {
			t.Errorf("%q: warn is logged: %t", tc.args, tc.want)
		}
	}
}
