package flags

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// console writes the log for people: a short time, the level, the message, and attributes. A line of a child's stderr
// follows the name of its server. An error keeps its line breaks, which libraries would put in quotes.
type console struct {
	w     io.Writer
	mu    *sync.Mutex // keeps lines whole
	level slog.Leveler
	color bool
	group string
	attrs []slog.Attr
}

// NewConsole returns the log for people. color means that w shows colors.
func NewConsole(w io.Writer, level slog.Leveler, color bool) slog.Handler {
	return &console{
		w:     w,
		mu:    new(sync.Mutex),
		level: level,
		color: color,
	}
}

// Enabled implements slog.Handler.
func (c *console) Enabled(_ context.Context, level slog.Level) bool { return level >= c.level.Level() }

// WithAttrs implements slog.Handler.
func (c *console) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *c
	more.attrs = slices.Clone(c.attrs)
	for _, a := range attrs {
		a.Key = c.group + a.Key
		more.attrs = append(more.attrs, a)
	}
	return &more
}

// WithGroup implements slog.Handler.
func (c *console) WithGroup(name string) slog.Handler {
	more := *c
	more.group += name + "."
	return &more
}

// These constants are ANSI codes for levels and for less important text.
const (
	dim    = "2"
	red    = "31"
	yellow = "33"
	cyan   = "36"
)

func (c *console) paint(code, text string) string {
	if !c.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Handle implements slog.Handler.
func (c *console) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(c.attrs)
	r.Attrs(func(a slog.Attr) bool {
		a.Key = c.group + a.Key
		attrs = append(attrs, a)
		return true
	})
	level := map[slog.Level]string{slog.LevelDebug: dim, slog.LevelInfo: cyan, slog.LevelWarn: yellow, slog.LevelError: red}[r.Level]
	line := c.paint(dim, r.Time.Format("15:04:05")) + " "
	if r.Message == "stderr" {
		line += c.paint(dim, "["+value(attrs, "server")+"]") + " " + value(attrs, "text")
	} else {
		line += c.paint(level, fmt.Sprintf("%-5s", r.Level)) + " " + sanitize.Text(r.Message)
		for _, a := range attrs {
			line += " " + c.paint(dim, a.Key+"=") + shown(a.Value)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := io.WriteString(c.w, line+"\n")
	return err
}

// value returns the value of an attribute, safe for a terminal.
func value(attrs []slog.Attr, key string) string {
	for _, a := range attrs {
		if a.Key == key {
			return sanitize.Text(a.Value.String())
		}
	}
	return ""
}

// shown returns a value safe for a terminal, in quotes if the end of the value would be unclear. An error needs no
// quotes, because it is the last value of a line.
func shown(v slog.Value) string {
	text := sanitize.Text(v.Resolve().String())
	if _, isErr := v.Any().(error); !isErr && (text == "" || strings.ContainsAny(text, " \n\"=")) {
		return fmt.Sprintf("%q", text)
	}
	return text
}
