// Package accesslog writes a line of JSON for each request of a client: its caller, method, server
// and outcome. It contains no secrets, even if the configuration adds payloads.
package accesslog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Log writes the lines. Requests do not wait for it: lines are queued, up to a limit, and one
// goroutine writes them.
type Log struct {
	path     string // empty for stdout and stderr
	instance string // tag of this instance; empty for a single instance
	payloads bool
	log      *slog.Logger
	lost     atomic.Uint64 // lines that were not written
	full     chan struct{} // receives when the queue has logSoon bytes
	stop     chan struct{} // closed by Close
	once     sync.Once     // closes stop
	done     chan struct{} // closed when the queue is written

	mu    sync.Mutex // guards the rest
	queue []byte     // whole lines
	ended bool       // the log is closed

	// The fields below belong to the goroutine that writes.
	out        io.Writer
	file       *os.File // out, if it is a file
	broken     bool     // the last write failed
	midLine    bool     // the last write ended within a line
	loggedLost uint64   // value of lost in the last log line
}

// The queue is written at each interval, and as soon as it is long. Its size is bounded.
const (
	logEvery = time.Second // the interval
	logSoon  = 64 << 10    // bytes that are written at once
	logMost  = 4 << 20     // bytes that may wait
)

// Open opens the configured access log; nil if there is none. A new file is readable by its owner
// only. instance is the tag of this instance of a cluster, or empty.
func Open(c config.AccessLog, instance string, log *slog.Logger) (*Log, error) {
	l := &Log{instance: instance, payloads: c.Payloads, log: log, full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	switch c.To {
	case "":
		return nil, nil
	case "stdout":
		l.out = os.Stdout
	case "stderr":
		l.out = os.Stderr
	default:
		l.path = c.To
		if err := l.open(); err != nil {
			return nil, fmt.Errorf("access_log: to is %s: %w", c.To, err)
		}
	}
	if c.Payloads {
		log.Warn("the access log contains arguments and results: use access_log: payloads for debugging only")
	}
	go l.run()
	return l, nil
}

// open opens the file, and appends to it.
func (l *Log) open() error {
	if info, err := os.Stat(l.path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return errors.New("is a pipe, which may block: name a file, stdout or stderr")
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.file, l.out, l.midLine = f, f, false
	return nil
}

// Take queues the line of a report. It does not block. It reports false if the log is closed: the
// caller then gives the line to the new log.
func (l *Log) Take(p *report.Report) bool {
	var room [512]byte
	return l.queued(l.line(room[:0], p))
}

// queued queues a line. It reports false if the log is closed.
func (l *Log) queued(line []byte) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	fits := len(l.queue)+len(line) <= logMost
	if fits {
		l.queue = append(l.queue, line...)
	}
	enough := len(l.queue) >= logSoon
	l.mu.Unlock()
	if !fits {
		l.lost.Add(1)
	}
	if enough {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
	return true
}

// Action queues the line of an operator's action, like Take.
func (l *Log) Action(principal, action, outcome string) bool {
	b := time.Now().AppendFormat([]byte(`{"time":"`), "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","level":"INFO","msg":"console"`...)
	if principal != "" {
		b = gjson.AppendJSONString(append(b, `,"principal":`...), principal)
	}
	b = gjson.AppendJSONString(append(b, `,"action":`...), action)
	b = gjson.AppendJSONString(append(b, `,"outcome":`...), outcome)
	return l.queued(append(b, "}\n"...))
}

// Lost returns the number of lines that could not be written.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// line appends the line of a report, with its line break.
func (l *Log) line(b []byte, p *report.Report) []byte {
	b = append(b, `{"time":"`...)
	b = p.Began.AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","level":"INFO","msg":"call","server":`...)
	b = gjson.AppendJSONString(b, p.Server)
	b = gjson.AppendJSONString(append(b, `,"method":`...), clipped(p.Request.Method))
	if name := p.Request.GivenName(); name != "" {
		b = gjson.AppendJSONString(append(b, `,"name":`...), clipped(name))
	}
	if p.Principal != "" {
		b = gjson.AppendJSONString(append(b, `,"principal":`...), p.Principal)
	}
	if p.From != nil {
		if name := health.Client(p.From); name != "" && name != health.Unnamed {
			b = gjson.AppendJSONString(append(b, `,"client":`...), name)
		}
	}
	if p.Client.IsValid() {
		b = append(p.Client.AppendTo(append(b, `,"client_address":"`...)), '"')
	}
	if p.Session != "" {
		b = gjson.AppendJSONString(append(b, `,"session":`...), p.Session)
	}
	if l.instance != "" {
		b = gjson.AppendJSONString(append(b, `,"instance":`...), l.instance)
	}
	if p.Front != "" {
		b = gjson.AppendJSONString(append(b, `,"front":`...), p.Front)
	}
	if p.Trace.IsValid() {
		b = append(hex.AppendEncode(append(b, `,"trace_id":"`...), p.Trace[:]), '"')
	}
	b = gjson.AppendJSONString(append(b, `,"era":`...), era.Name(p.Revision))
	if p.Speaks != "" {
		b = gjson.AppendJSONString(append(b, `,"server_era":`...), era.Name(p.Speaks))
	}
	b = gjson.AppendJSONString(append(b, `,"outcome":`...), p.Outcome.String())
	if p.Code != 0 {
		b = strconv.AppendInt(append(b, `,"code":`...), p.Code, 10)
	}
	b = strconv.AppendFloat(append(b, `,"duration_ms":`...), float64(p.Took.Microseconds())/1000, 'f', -1, 64)
	b = strconv.AppendInt(append(b, `,"bytes_in":`...), int64(p.Request.Len()), 10)
	if p.Answer != nil {
		b = strconv.AppendInt(append(b, `,"bytes_out":`...), int64(p.Answer.Len()), 10)
	}
	if l.payloads {
		b = appendPayload(b, "params", p.Request.Params)
		if p.Answer != nil {
			b = appendPayload(b, "result", p.Answer.Result)
			b = appendPayload(b, "error", p.Answer.Error)
		}
	}
	return append(b, "}\n"...)
}

// appendPayload appends a member of the line, without secrets, if there is one.
func appendPayload(b []byte, name string, raw []byte) []byte {
	if raw == nil {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	shown, whole := Redact(raw, maxPayload)
	if b = append(b, shown...); !whole {
		b = append(append(append(b, `,"`...), name...), `_cut":true`...)
	}
	return b
}

// Limits of one line.
const (
	maxShown   = 128     // bytes of a name that a client sent
	maxPayload = 4 << 10 // of params and of a result
)

// clipped returns the beginning of a name.
func clipped(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}

// run writes the queue until Close.
func (l *Log) run() {
	defer close(l.done)
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	var spare []byte
	for last := false; !last; {
		select {
		case <-l.full:
		case <-tick.C:
			l.follow()
		case <-l.stop:
			last = true
		}
		l.mu.Lock()
		lines := l.queue
		l.queue, l.ended = spare[:0], last
		l.mu.Unlock()
		l.write(sanitize.JSON(lines))
		if spare = lines; cap(spare) > 16*logSoon {
			spare = nil // after a burst
		}
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			l.log.Warn("access log", "err", err)
		}
	}
}

// follow opens the file again after it was moved or removed, such as by log rotation.
func (l *Log) follow() {
	if l.path == "" {
		return
	}
	if l.file != nil {
		now, err := os.Stat(l.path)
		ours, oursErr := l.file.Stat()
		if err == nil && oursErr == nil && os.SameFile(now, ours) {
			return
		}
		_ = l.file.Close() // the file is gone in any case
		l.file, l.out = nil, nil
	}
	if err := l.open(); err != nil {
		l.fail(err)
	}
}

// fail logs that the log cannot be written, once until it can be written again.
func (l *Log) fail(err error) {
	if !l.broken {
		l.broken = true
		l.log.Error("the access log cannot be written: lines are lost", "err", err)
	}
}

// write writes whole lines. Those that cannot be written are lost.
func (l *Log) write(lines []byte) {
	switch {
	case len(lines) == 0:
	case l.out == nil:
		l.lost.Add(count(lines))
	default:
		n, err := 0, error(nil)
		if l.midLine {
			_, err = l.out.Write([]byte("\n"))
			l.midLine = err != nil
		}
		if err == nil {
			n, err = l.out.Write(lines)
		}
		if err != nil {
			l.midLine = l.midLine || n > 0 && lines[n-1] != '\n'
			l.lost.Add(count(lines[n:]))
			l.fail(err)
		} else if l.broken {
			l.broken = false
			l.log.Info("the access log can be written again")
		}
	}
	if lost := l.lost.Load(); lost != l.loggedLost && !l.broken {
		l.log.Warn("lines of the access log are lost: it is written too slowly", "count", lost-l.loggedLost)
		l.loggedLost = lost
	}
}

// count returns the number of lines that end in b.
func count(b []byte) (n uint64) {
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

// Close writes the queue. It stops waiting for a blocked file when done is closed.
func (l *Log) Close(done <-chan struct{}) {
	l.once.Do(func() { close(l.stop) })
	select {
	case <-l.done:
	case <-done:
		l.log.Warn("the access log does not accept lines: queued lines are lost")
	}
}
