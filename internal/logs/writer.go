package logs

import (
	"bytes"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Sink is where a Writer writes its lines. One goroutine calls its methods, which may log.
type Sink interface {
	io.Writer
	// Failed is called with the error of the first write that fails, and with nil when writes succeed again.
	Failed(err error)
	// LeftOut is called with the number of lines that were lost, when lines can be written again.
	LeftOut(lines uint64)
	// Follow is called at each interval. It reports whether lines now go to another file.
	Follow() bool
}

// Writer writes whole lines to a Sink. Callers do not wait: lines are queued, up to a limit, and one goroutine writes
// them. A line that finds no room is lost and counted.
type Writer struct {
	sink  Sink
	most  int // bytes that may be queued
	every time.Duration
	lost  atomic.Uint64 // lines that were lost
	wake  chan struct{} // holds an element when there is enough to write
	stop  chan struct{} // closed by Close
	once  sync.Once     // closes stop
	done  chan struct{} // closed when the queue was written after Close

	mu      sync.Mutex    // guards the rest
	queue   []byte        // whole lines
	settled chan struct{} // closed when the lines queued so far are written; nil while no caller waits for that
	ended   bool          // Write refuses lines

	// Only the goroutine that writes uses the fields below.
	spare   []byte // memory for the next queue
	broken  bool   // the last write failed
	midLine bool   // the last write ended in the middle of a line
	told    uint64 // value of lost in the last call of LeftOut
}

// soon is how many queued bytes are written before the interval ends.
const soon = 64 << 10

// NewWriter returns a Writer that queues up to most bytes, and writes them each time that every has passed. If every is
// 0, it writes them at once.
func NewWriter(sink Sink, most int, every time.Duration) *Writer {
	w := &Writer{
		sink:  sink,
		most:  most,
		every: every,
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go w.run()
	return w
}

// Write queues lines. After Close the error is os.ErrClosed.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return 0, os.ErrClosed
	}
	fits := len(w.queue)+len(lines) <= w.most
	if fits {
		w.queue = append(w.queue, lines...)
	}
	enough := w.every == 0 || len(w.queue) >= soon
	w.mu.Unlock()
	if !fits {
		w.lost.Add(count(lines))
	}
	if enough {
		w.nudge()
	}
	return len(lines), nil
}

// Settle waits until the lines queued so far are written, or done is closed.
func (w *Writer) Settle(done <-chan struct{}) {
	w.mu.Lock()
	if w.settled == nil {
		w.settled = make(chan struct{})
	}
	settled := w.settled
	w.mu.Unlock()
	w.nudge()
	select {
	case <-settled:
	case <-w.done:
	case <-done:
	}
}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Lost returns how many lines were lost.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Close writes the queue, and waits for that. If done is closed first, Close reports false.
func (w *Writer) Close(done <-chan struct{}) bool {
	w.once.Do(func() { close(w.stop) })
	select {
	case <-w.done:
		return true
	case <-done:
		return false
	}
}

// run writes the queue until Close.
func (w *Writer) run() {
	defer close(w.done)
	var tick <-chan time.Time
	if w.every > 0 {
		t := time.NewTicker(w.every)
		defer t.Stop()
		tick = t.C
	}
	for stopped := false; !stopped; {
		select {
		case <-w.wake:
		case <-tick:
			if w.sink.Follow() {
				w.midLine = false
			}
		case <-w.stop:
			stopped = true
		}
		w.flush(false)
	}
	w.flush(false) // Failed and LeftOut may have queued lines
	w.flush(true)
}

// flush writes what is queued. After the flush with last, Write refuses lines.
func (w *Writer) flush(last bool) {
	w.mu.Lock()
	lines := w.queue
	settled := w.settled
	w.queue, w.settled, w.ended = w.spare[:0], nil, last
	w.mu.Unlock()
	if settled != nil {
		defer close(settled)
	}
	// The queue is empty now, so it has room for a line of LeftOut. That line follows the last one that was not lost.
	if lost := w.lost.Load(); lost != w.told && !w.broken {
		w.sink.LeftOut(lost - w.told)
		w.told = lost
	}
	w.write(lines)
	if w.spare = lines; cap(lines) > 16*soon {
		w.spare = nil // the queue was large only after a burst
	}
}

// write writes whole lines. A line that cannot be written is lost.
func (w *Writer) write(lines []byte) {
	if len(lines) == 0 {
		return
	}
	n, err := 0, error(nil)
	if w.midLine {
		_, err = w.sink.Write([]byte("\n"))
		w.midLine = err != nil
	}
	if err == nil {
		n, err = w.sink.Write(lines)
	}
	if err != nil {
		w.midLine = w.midLine || n > 0 && lines[n-1] != '\n'
		w.lost.Add(count(lines[n:]))
	}
	if broken := err != nil; broken != w.broken {
		w.broken = broken
		w.sink.Failed(err)
		w.nudge() // so that LeftOut is called
	}
}

// count returns the number of lines that end in b.
func count(b []byte) uint64 { return uint64(bytes.Count(b, []byte("\n"))) }
