package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// status shows the progress of a request on stderr, on a terminal in one line. With --verbose, it also shows the
// server's log.
type status struct {
	*console
	quiet, verbose bool

	mu    sync.Mutex // guards the rest, and is held during each write to keep lines whole
	shown bool       // a line of progress is on the terminal
	held  bool       // the user is being asked
	start *start     // nil if the server is not starting
}

// lateAfter is the delay before a message about a slow step.
const lateAfter = 500 * time.Millisecond

// late calls say, with s.mu held, unless ended is called within lateAfter. After a call of ended, say is not called.
func (s *status) late(say func()) (ended func()) {
	over := false
	t := time.AfterFunc(lateAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !over {
			say()
		}
	})
	return func() {
		t.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		over, s.start = true, nil
	}
}

// stopping prints on a terminal that the server is stopping, if this takes long. The caller calls done when the server
// has stopped.
func (s *status) stopping() (done func()) {
	if s.quiet || !s.errTerm {
		return func() {}
	}
	return s.late(func() {
		s.wipe()
		_, _ = io.WriteString(s.err, "stopping the server…\n") // stderr may be closed
	})
}

// starting prints on a terminal that the server is starting, if this takes long. It then shows the server's stderr,
// because the server may be downloading. The caller calls done when the server has started.
func (s *status) starting(name string) (done func()) {
	if s.quiet || s.verbose || !s.errTerm {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = &start{}
	return s.late(func() {
		s.start.told = true
		_, _ = io.WriteString(s.err, "starting "+name+"…\n"+s.start.lines) // there is no other place for an error
	})
}

// start is the start of a server in progress.
type start struct {
	told  bool   // the message was printed
	lines string // the server's stderr before the message
}

// maxUntold bounds start.lines in bytes.
const maxUntold = 4 << 10

// starts reports whether the server is starting and its output may be shown.
func (s *status) starts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start != nil
}

// wrote handles a line of the server's stderr.
func (s *status) wrote(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line = "  " + terminal.OneLine(sanitize.Text(line)) + "\n"
	switch {
	case s.start == nil:
	case s.start.told:
		_, _ = io.WriteString(s.err, line)
	case len(s.start.lines)+len(line) <= maxUntold:
		s.start.lines += line
	}
}

// listener is a log handler that shows the stderr of a starting server.
type listener struct {
	slog.Handler
	status *status
}

// Enabled implements slog.Handler.
func (l *listener) Enabled(ctx context.Context, level slog.Level) bool {
	return l.Handler.Enabled(ctx, level) || level == slog.LevelInfo && l.status.starts()
}

// Handle implements slog.Handler.
func (l *listener) Handle(ctx context.Context, r slog.Record) error {
	if l.Handler.Enabled(ctx, r.Level) {
		return l.Handler.Handle(ctx, r)
	}
	if r.Message == "stderr" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "text" {
				l.status.wrote(a.Value.String())
			}
			return a.Key != "text"
		})
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &listener{l.Handler.WithAttrs(attrs), l.status}
}

// WithGroup implements slog.Handler.
func (l *listener) WithGroup(name string) slog.Handler {
	return &listener{l.Handler.WithGroup(name), l.status}
}

// hear handles a notification.
func (s *status) hear(method string, params json.RawMessage) {
	switch method {
	case "notifications/progress":
		s.progress(progressText(gjson.ParseBytes(params)))
	case "notifications/message":
		if s.verbose {
			s.print(logText(gjson.ParseBytes(params)) + "\n")
		}
	}
}

func (s *status) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet || s.held {
		return
	}
	if !s.errTerm {
		fmt.Fprintln(s.err, text)
		return
	}
	s.shown = true
	fmt.Fprint(s.err, "\r"+terminal.Cut(text, s.errWidth-1)+"\x1b[K")
}

// progressText formats a progress notification.
func progressText(p gjson.Result) string {
	text := terminal.OneLine(p.Get("progress").Raw)
	if total := p.Get("total"); total.Float() > 0 {
		percent := 100 * p.Get("progress").Float() / total.Float()
		text += "/" + terminal.OneLine(total.Raw) + " (" + strconv.FormatFloat(min(max(percent, 0), 100), 'f', 0, 64) + "%)"
	}
	if m := terminal.OneLine(p.Get("message").String()); m != "" {
		text += " " + m
	}
	return sanitize.Text(text)
}

// logText formats a log message of the server.
func logText(p gjson.Result) string {
	text := "[" + p.Get("level").String() + "] "
	if name := p.Get("logger").String(); name != "" {
		text += name + ": "
	}
	return sanitize.Text(terminal.OneLine(text + arguments.Plain(p.Get("data").Raw)))
}

// print writes text to stderr, on separate lines.
func (s *status) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	_, _ = io.WriteString(s.err, text) // there is no other place for an error
}

// clear removes the line of progress.
func (s *status) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
}

// hold suppresses progress until hold(false) is called.
func (s *status) hold(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	s.held = yes
}

// holds reports whether a question to the user is open.
func (s *status) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *status) wipe() {
	if s.shown {
		fmt.Fprint(s.err, "\r\x1b[K")
		s.shown = false
	}
}

// emit writes a command's output. The caller escapes text of a server with console.text.
func (c *console) emit(text string) error {
	if _, err := io.WriteString(c.out, text); err != nil {
		return exit.With(exit.Failure, fmt.Errorf("write the output: %w", err))
	}
	return nil
}

// printJSON prints a JSON document: indented on a terminal, otherwise unchanged.
func (c *console) printJSON(raw []byte) error {
	if c.outTerm {
		return c.emit(sanitize.Text(indented(raw)) + "\n")
	}
	return c.emit(strings.TrimRight(string(raw), "\n") + "\n")
}
