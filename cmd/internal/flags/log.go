package flags

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Log holds the flags for the log, which is written to stderr. stdout is for a command's output.
type Log struct {
	Level, Format string

	given func() bool   // reports whether the command line has the level
	least slog.LevelVar // the level of the log that Logger has returned
}

// Follow applies the level of a configuration file to Logger's log, unless the command line sets a level.
func (l *Log) Follow(level string) {
	if !l.given() {
		_ = l.least.UnmarshalText([]byte(level)) // Validate has checked the level
	}
}

// Over returns the level that counts, given the level of a file, and the flag that set the level, or "" if no flag did.
func (l *Log) Over(level string) (counts, flag string) {
	if l.given() {
		return l.Level, "--log-level"
	}
	return level, ""
}

// Add adds the flags to a command and its subcommands.
func (l *Log) Add(c *cobra.Command) {
	c.PersistentFlags().StringVar(&l.Level, "log-level", "info", "least level to log: debug, info, warn or error")
	c.PersistentFlags().StringVar(&l.Format, "log-format", "auto", "form of the log: text, json, or auto (json unless on a terminal)")
	l.given = func() bool { return c.PersistentFlags().Changed("log-level") }
}

// Logger returns the log that the flags describe.
func (l *Log) Logger(w io.Writer) (*slog.Logger, error) {
	if err := l.least.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, exit.Usagef("--log-level is %q: must be debug, info, warn or error", l.Level)
	}
	h, err := l.handler(w)
	if err != nil {
		return nil, err
	}
	log := slog.New(h)
	if o, ok := w.(*terminal.Output); ok {
		o.LogTo(log)
	}
	return log, nil
}

func (l *Log) handler(w io.Writer) (slog.Handler, error) {
	o := &slog.HandlerOptions{Level: &l.least}
	isTerminal, _ := terminal.Is(w)
	switch { // slog's text form escapes control characters itself
	case l.Format == "auto" && isTerminal:
		return NewConsole(w, &l.least, terminal.Colors()), nil
	case l.Format == "text":
		return slog.NewTextHandler(w, o), nil
	case l.Format == "json", l.Format == "auto":
		return slog.NewJSONHandler(sanitize.JSONWriter(w), o), nil
	}
	return nil, exit.Usagef("--log-format is %q: must be auto, text or json", l.Format)
}
