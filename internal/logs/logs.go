// Package logs stores the last lines of the bridge's log, and of servers' standard error, while
// somebody reads them. A Limiter limits lines that would be too many.
package logs

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxLines = 500
	maxText  = 2 << 10 // bytes of a message or a value
	maxAttrs = 24      // attributes of a line
	linger   = time.Minute
)

// Line is a line of the log.
type Line struct {
	At     time.Time         `json:"at"`
	Level  string            `json:"level"`
	Text   string            `json:"msg"`
	Server string            `json:"server,omitempty"` // the server that the line is about
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// Log stores lines. Its methods may be called concurrently.
type Log struct {
	on atomic.Bool

	mu        sync.Mutex // guards the fields below
	readers   int
	timer     *time.Timer
	since     time.Time
	lines     Ring[*Line]
	listeners map[int]func(*Line)
	last      int
}

// New returns a Log, which stores nothing yet.
func New() *Log { return &Log{listeners: map[int]func(*Line){}, lines: NewRing[*Line](maxLines)} }

// Watch makes the log store lines until done is called, and a minute longer. It calls tell for each line;
// tell must neither block nor log, and may be nil.
func (l *Log) Watch(tell func(*Line)) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if !l.on.Load() {
		l.since = time.Now()
		l.on.Store(true)
	}
	l.last++
	id := l.last
	if tell != nil {
		l.listeners[id] = tell
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, id)
		if l.readers--; l.readers == 0 {
			l.timer = time.AfterFunc(linger, l.stop)
		}
	})
}

func (l *Log) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == 0 {
		l.on.Store(false)
		l.lines, l.timer, l.since = NewRing[*Line](maxLines), nil, time.Time{}
	}
}

// Close stops storing lines for good.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.on.Store(false)
}

// Lines returns the last lines for which fits is true, oldest first, and the time at which storing began.
func (l *Log) Lines(most int, fits func(*Line) bool) (lines []*Line, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines = []*Line{}
	l.lines.Newest(func(one *Line) bool {
		if fits(one) {
			lines = append(lines, one)
		}
		return len(lines) < most
	})
	slices.Reverse(lines)
	return lines, l.since
}

// Handler returns a handler that passes all records to next, and stores records of at least level Info.
func (l *Log) Handler(next slog.Handler) slog.Handler { return &handler{next, l, nil, ""} }

type handler struct {
	slog.Handler
	l     *Log
	attrs []slog.Attr // names have the prefix of their groups
	group string      // prefix of names, with a final dot
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, level) || level >= slog.LevelInfo && h.l.on.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.l.on.Load() {
		h.store(&r)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// store stores a line.
func (h *handler) store(r *slog.Record) {
	line := &Line{At: r.Time, Level: r.Level.String(), Text: cut(r.Message), Attrs: map[string]string{}}
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
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if !h.l.on.Load() {
		return
	}
	h.l.lines.Add(line)
	for _, tell := range h.l.listeners {
		tell(line)
	}
}

func cut(s string) string { return s[:min(len(s), maxText)] }

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
