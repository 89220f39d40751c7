package logs

import (
	"bytes"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Sink is where the lines of a Writer go. One goroutine calls its methods, which may log.
type Sink interface {
	io.Writer
	// Failed reports the first error after lines were written, and nil when lines are written again.
	Failed(err error)
	// LeftOut is told how many lines were lost, when lines can be written.
	LeftOut(lines uint64)
	// Follow is called at each interval. It reports whether lines go to another place now.
	Follow() bool
}

// Writer writes whole lines to a Sink. Nobody waits for it: lines are queued, up to a limit, and
// one goroutine writes them. A line that finds no room is left out and counted.
type Writer struct {
	sink  Sink
	most  int // bytes that may wait
	every time.Duration
	lost  atomic.Uint64 // lines that were not written
	wake  chan struct{} // receives when there is enough to write
	stop  chan struct{} // closed by Close
	once  sync.Once     // closes stop
	done  chan struct{} // closed when the queue is written

	mu      sync.Mutex    // guards the rest
	queue   []byte        // whole lines
	settled chan struct{} // closed when the queue so far is written; nil when nobody waits for that
	ended   bool          // lines are refused

	// The fields below belong to the goroutine that writes.
	spare   []byte // the memory of the next queue
	broken  bool   // the last write failed
	midLine bool   // the last write ended within a line
	told    uint64 // the value of lost in the last LeftOut
}

// soon is the number of queued bytes that are written before the interval ends.
const soon = 64 << 10

// NewWriter returns a Writer whose queue has up to most bytes. They are written at each interval, or
// at once if every is 0.
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

// Write queues lines. It fails only after Close, with os.ErrClosed.
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

// Settle waits until the lines so far are written, or done is closed.
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

// Lost returns the number of lines that were not written.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Close writes the queue. It stops waiting for a sink that blocks when done is closed, and then
// reports false.
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
	w.flush(false) // may queue how many lines were lost meanwhile
	w.flush(true)
}

// flush writes what is queued. After the last flush, lines are refused.
func (w *Writer) flush(last bool) {
	w.mu.Lock()
	lines := w.queue
	settled := w.settled
	w.queue, w.settled, w.ended = w.spare[:0], nil, last
	w.mu.Unlock()
	if settled != nil {
		defer close(settled)
	}
	// The queue is empty: it has room for a line of LeftOut's, which follows the last one that was not lost.
	if lost := w.lost.Load(); lost != w.told && !w.broken {
		w.sink.LeftOut(lost - w.told)
		w.told = lost
	}
	w.write(lines)
	if w.spare = lines; cap(lines) > 16*soon {
		w.spare = nil // after a burst
	}
}

// write writes whole lines. Those that cannot be written are lost.
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
		w.nudge() // LeftOut is due
	}
}

// count returns the number of lines that end in b.
func count(b []byte) uint64 { return uint64(bytes.Count(b, []byte("\n"))) }
