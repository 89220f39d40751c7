package stdio

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// errorLog logs the standard error of the children of one server. It is bounded, so that endless
// output neither fills the disk nor hides other log lines.
type errorLog struct {
	log   *slog.Logger
	lines *rate.Limiter

	mu    sync.Mutex  // guards left and timer
	left  int         // lines left out since the last report
	timer *time.Timer // for the next report; nil if none is due
}

// These bound the lines that all children of one server log. A line counts as one, and one more for
// each full KiB.
const (
	errorLines = 100              // a second
	errorBurst = 1000             // at once, after a pause
	leftEvery  = 10 * time.Second // between reports of lines left out
)

func newErrorLog(log *slog.Logger) *errorLog {
	return &errorLog{log: log, lines: rate.NewLimiter(errorLines, errorBurst)}
}

// add logs a line, or leaves it out if there are too many.
func (e *errorLog) add(line []byte) {
	if !e.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	if e.lines.AllowN(time.Now(), 1+len(line)>>10) {
		e.log.Info("stderr", "text", string(line))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left++; e.timer == nil {
		e.timer = time.AfterFunc(leftEvery, e.report)
	}
}

// tail keeps the last lines that one child wrote to its standard error, which probably explain a
// failure. It leaves out empty lines, and the stack of an exception in Node.js or Java, which would
// push out the exception itself.
type tail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

const (
	tailLines = 8   // lines of a tail
	tailWidth = 400 // bytes of one of its lines
)

func (t *tail) add(line []byte) {
	if text := bytes.TrimLeft(line, " \t\r"); len(text) == 0 || len(text) < len(line) && bytes.HasPrefix(text, []byte("at ")) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	text := strings.ToValidUTF8(string(line[:min(len(line), tailWidth)]), "")
	if len(line) > tailWidth {
		text += "…"
	}
	t.lines = append(t.lines, text)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// report logs how many lines were left out. It runs when the timer fires, and at the end of a
// child's standard error.
func (e *errorLog) report() {
	e.mu.Lock()
	left := e.left
	e.left = 0
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	e.mu.Unlock()
	if left > 0 {
		e.log.Warn("lines left out: the server writes too much to its standard error", "lines", left)
	}
}
