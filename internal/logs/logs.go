// Package logs stores the last lines of the bridge's log, and of the standard error of servers. Its Limiter suppresses
// lines that would be too many.
package logs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxLines = 500
	maxBytes = 128 << 10 // sum of Line.Weight of all lines
	maxText  = 2 << 10   // bytes of a message, or of a value of an attribute
	maxAttrs = 24        // attributes of a line
)

// Line is a line of the log.
type Line struct {
	At     time.Time         `json:"at"`
	Level  string            `json:"level"`
	Text   string            `json:"msg"`
	Server string            `json:"server,omitempty"` // server that the line is about; empty for none
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// Weight returns the approximate size in bytes of the line as JSON.
func (l *Line) Weight() int {
	n := 120 + len(l.Text)
	for name, text := range l.Attrs {
		n += len(name) + len(text)
	}
	return n
}

// Log stores lines. Its methods may be called concurrently.
type Log struct {
	mu        sync.Mutex // guards the rest
	lines     []*Line    // the oldest first
	bytes     int        // sum of Weight of lines
	listeners map[int]func(*Line)
	last      int // last id of a listener
}

// New returns an empty Log.
func New() *Log { return &Log{listeners: map[int]func(*Line){}} }

// Watch calls tell for each new line until done is called. tell must neither block nor log.
func (l *Log) Watch(tell func(*Line)) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	id := l.last
	l.listeners[id] = tell
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, id)
	}
}

// Lines returns the newest lines for which fits returns true, at most most of them, the oldest first.
func (l *Log) Lines(most int, fits func(*Line) bool) []*Line {
	l.mu.Lock()
	all := slices.Clone(l.lines)
	l.mu.Unlock()
	lines := []*Line{}
	for _, one := range slices.Backward(all) {
		if len(lines) < most && fits(one) {
			lines = append(lines, one)
		}
	}
	slices.Reverse(lines)
	return lines
}

// add adds a line. If there are too many lines then, add removes the oldest.
func (l *Log) add(one *Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.bytes = append(l.lines, one), l.bytes+one.Weight()
	old := 0
	for ; len(l.lines)-old > maxLines || l.bytes > maxBytes; old++ {
		l.bytes -= l.lines[old].Weight()
	}
	l.lines = slices.Delete(l.lines, 0, old)
	for _, tell := range l.listeners {
		tell(one)
	}
}

// Handler returns a handler that passes records to next, and stores records of level Info and above.
func (l *Log) Handler(next slog.Handler) slog.Handler { return &handler{next, l, nil, ""} }

type handler struct {
	slog.Handler
	l     *Log
	attrs []slog.Attr // their names have the prefix group
	group string      // names of the groups, each with a dot behind it
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.store(&r)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// store stores a line.
func (h *handler) store(r *slog.Record) {
	line := &Line{
		At:    r.Time,
		Level: r.Level.String(),
		Text:  cut(r.Message),
		Attrs: map[string]string{},
	}
	add := func(a slog.Attr) bool {
		name, text := cut(a.Key), cut(a.Value.Resolve().String())
		if name == "server" {
			line.Server = text
		} else if len(line.Attrs) < maxAttrs && name != "" {
			line.Attrs[name] = text
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(func(a slog.Attr) bool { return add(slog.Attr{Key: h.group + a.Key, Value: a.Value}) })
	h.l.add(line)
}

func cut(s string) string {
	if len(s) > maxText {
		return strings.Clone(s[:maxText]) // a copy, which does not keep the rest in memory
	}
	return s
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all := slices.Clone(h.attrs)
	for _, a := range attrs {
		all = append(all, slog.Attr{Key: h.group + a.Key, Value: a.Value})
	}
	return &handler{h.Handler.WithAttrs(attrs), h.l, all, h.group}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{h.Handler.WithGroup(name), h.l, h.attrs, h.group + name + "."}
}
