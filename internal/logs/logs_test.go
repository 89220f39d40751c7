package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func all(*Line) bool { return true }

// Lines are stored while somebody looks, and a minute longer.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		defer l.Close()
		var out bytes.Buffer
		log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))).With("server", "one")
		log.Warn("before")
		if lines, _ := l.Lines(10, all); len(lines) != 0 {
			t.Errorf("while nobody looks: %v", lines)
		}
		told := 0
		done := l.Watch(func(*Line) { told++ })
		log.Info("now", "err", "none", slog.Group("g", "a", 1))
		log.WithGroup("h").Warn("too", "b", 2)
		log.Debug("never")
		lines, since := l.Lines(10, all)
		if len(lines) != 2 || lines[0].Text != "now" || lines[0].Server != "one" || lines[0].Attrs["err"] != "none" || lines[1].Attrs["h.b"] != "2" || since.IsZero() || told != 2 {
			t.Fatalf("%+v %v, told %d", lines, since, told)
		}
		if s := out.String(); strings.Contains(s, "now") || !strings.Contains(s, "before") || !strings.Contains(s, "h.b=2") {
			t.Errorf("what others get: %s", s)
		}
		done()
		done()
		time.Sleep(30 * time.Second)
		log.Warn("half a minute later")
		l.Watch(nil)()
		time.Sleep(59 * time.Second)
		if lines, _ := l.Lines(10, all); len(lines) != 3 || told != 2 {
			t.Errorf("before it ends: %v", lines)
		}
		time.Sleep(2 * time.Second)
		log.Warn("after")
		if lines, since := l.Lines(10, all); len(lines) != 0 || !since.IsZero() {
			t.Errorf("after it has ended: %v", lines)
		}
		defer l.Watch(nil)()
		for range 2 * maxLines {
			log.Warn(strings.Repeat("x", 2*maxText))
		}
		if lines, _ := l.Lines(2*maxLines, all); len(lines) != maxLines || len(lines[0].Text) != maxText {
			t.Errorf("%d lines of %d", len(lines), len(lines[0].Text))
		}
	})
}
