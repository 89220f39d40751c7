package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func all(*Line) bool { return true }

// The last lines are there for whoever asks, and who watches gets each.
func TestLines(t *testing.T) {
	l := New()
	var out bytes.Buffer
	log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))).With("server", "one")
	log.Warn("before")
	told := 0
	done := l.Watch(func(*Line) { told++ })
	log.Info("now", "err", "none", slog.Group("g", "a", 1))
	log.WithGroup("h").Warn("too", "b", 2)
	log.Debug("never")
	done()
	log.Warn("after")
	lines := l.Lines(10, all)
	if len(lines) != 4 || lines[0].Text != "before" || lines[1].Text != "now" || lines[1].Server != "one" || lines[1].Attrs["err"] != "none" || lines[2].Attrs["h.b"] != "2" || told != 2 {
		t.Fatalf("%+v, told %d", lines, told)
	}
	if last := l.Lines(1, func(one *Line) bool { return one.Level == "INFO" }); len(last) != 1 || last[0] != lines[1] {
		t.Errorf("those that fit: %v", last)
	}
	if s := out.String(); strings.Contains(s, "now") || !strings.Contains(s, "before") || !strings.Contains(s, "h.b=2") {
		t.Errorf("what others get: %s", s)
	}
	slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))).Debug("detail")
	if lines := l.Lines(10, all); len(lines) != 4 || !strings.Contains(out.String(), "detail") {
		t.Errorf("a line of level debug: %d lines are stored, others get %s", len(lines), out.String())
	}
	for range 2 * maxLines {
		log.Warn("short")
	}
	if lines := l.Lines(2*maxLines, all); len(lines) != maxLines {
		t.Errorf("%d lines", len(lines))
	}
	for range maxLines {
		log.Warn(strings.Repeat("x", 2*maxText))
	}
	lines = l.Lines(2*maxLines, all)
	bytes := 0
	for _, one := range lines {
		bytes += one.Weight()
	}
	if len(lines[0].Text) != maxText || bytes > maxBytes || bytes < maxBytes-2*maxText {
		t.Errorf("%d lines of %d, %d bytes in all", len(lines), len(lines[0].Text), bytes)
	}
}
