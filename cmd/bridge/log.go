package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mcp-bridge/bridge/bridge/visible"
)

// logFlags are the flags about the log, which goes to stderr: stdout is for
// what a command prints for its user.
type logFlags struct{ level, format string }

func (l *logFlags) add(c *cobra.Command) {
	c.PersistentFlags().StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
	c.PersistentFlags().StringVar(&l.format, "log-format", "auto", "text, json, or auto: text on a terminal and json otherwise")
}

func (l *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level is %q: must be debug, info, warn or error", l.level)}
	}
	o := &slog.HandlerOptions{Level: level}
	f, isFile := w.(*os.File)
	switch { // as text, slog itself shows what is hidden
	case l.format == "text", l.format == "auto" && isFile && term.IsTerminal(int(f.Fd())):
		return slog.New(slog.NewTextHandler(w, o)), nil
	case l.format == "json", l.format == "auto":
		return slog.New(slog.NewJSONHandler(visible.JSONWriter(w), o)), nil
	}
	return nil, usageError{fmt.Errorf("--log-format is %q: must be auto, text or json", l.format)}
}
