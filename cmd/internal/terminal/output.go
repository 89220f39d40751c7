package terminal

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/internal/logs"
)

const (
	maxWaiting = 1 << 20         // maximum bytes that wait for a reader
	lastWait   = 2 * time.Second // maximum wait for a reader in Settle and Close
)

// Output is stdout or stderr of a command that serves. Its writers never wait for a reader. Lines for which there is no
// room are left out.
type Output struct {
	*logs.Writer
	s *sink
}

// NewOutput returns an Output that writes to a file. The caller must call Close.
func NewOutput(to io.Writer) *Output {
	s := &sink{Writer: to}
	return &Output{logs.NewWriter(s, maxWaiting, 0), s}
}

// LogTo sets the log that reports how many lines were left out.
func (o *Output) LogTo(log *slog.Logger) { o.s.log.Store(log) }

// Settle writes the queued lines, if there is a reader. Output that another Output gets afterwards then appears below
// these lines.
func (o *Output) Settle() {
	within(o.Writer.Settle)
}

// Close writes the last lines, if there is a reader.
func (o *Output) Close() {
	within(func(late <-chan struct{}) { o.Writer.Close(late) })
}

// within calls wait with a channel that is closed after lastWait.
func within(wait func(late <-chan struct{})) {
	late := make(chan struct{})
	defer time.AfterFunc(lastWait, func() { close(late) }).Stop()
	wait(late)
}

type sink struct {
	io.Writer
	log atomic.Pointer[slog.Logger] // nil without a log
}

var _ logs.Sink = (*sink)(nil)

// LeftOut implements logs.Sink.
func (s *sink) LeftOut(lines uint64) {
	if log := s.log.Load(); log != nil {
		log.Warn("lines of this log were left out: its reader is too slow, or its disk is full", "count", lines)
	}
}

// Failed implements logs.Sink. It does nothing, because there is no other place to report the error.
func (s *sink) Failed(error) {}

// Follow implements logs.Sink.
func (s *sink) Follow() bool { return false }
