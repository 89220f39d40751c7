package terminal

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/internal/logs"
)

const (
	maxWaiting = 1 << 20         // bytes that wait for a reader
	lastWait   = 2 * time.Second // for a reader, in Settle and Close
)

// Output is stdout or stderr of a command that serves: whoever writes there never waits for a reader.
// Lines that find no room are left out.
type Output struct {
	*logs.Writer
	s *sink
}

// NewOutput returns an Output that writes to a file. Close must be called.
func NewOutput(to io.Writer) *Output {
	s := &sink{Writer: to}
	return &Output{logs.NewWriter(s, maxWaiting, 0), s}
}

// LogTo sets the log that says how many lines were left out.
func (o *Output) LogTo(log *slog.Logger) { o.s.log.Store(log) }

// Settle writes what is queued, if there is a reader: what another Output gets afterwards stands below it.
func (o *Output) Settle() {
	within(o.Writer.Settle)
}

// Close is Settle for the last lines.
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

// Failed implements logs.Sink. There is no other place to say it.
func (s *sink) Failed(error) {}

// Follow implements logs.Sink.
func (s *sink) Follow() bool { return false }
