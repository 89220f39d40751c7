// Package accesslog writes a line of JSON for each request of a client: its caller, method, server and outcome. The
// lines contain no secrets, even if the configuration adds payloads.
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
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Log writes the lines of the access log. Requests do not wait for a write.
type Log struct {
	*logs.Writer
	instance string // tag of this instance; empty for a single instance
	payloads bool
	to       *target
}

const (
	logEvery = time.Second // the interval of writes
	logMost  = 4 << 20     // bytes of queued lines; beyond this bound, lines are lost
)

// Open opens the configured access log. Open returns nil if none is configured. A new file is readable by its owner
// only. instance is the tag of this instance of a cluster, or empty.
func Open(a config.AccessLog, instance string, log *slog.Logger) (*Log, error) {
	t := &target{log: log}
	switch a.To {
	case "":
		return nil, nil
	case "stdout":
		t.Writer = os.Stdout
	case "stderr":
		t.Writer = os.Stderr
	default:
		t.path = a.To
		if err := t.open(); err != nil {
			return nil, fmt.Errorf("access_log: to is %s: %w", a.To, err)
		}
	}
	if a.Payloads {
		log.Warn("the access log contains arguments and results: use access_log: payloads for debugging only")
	}
	return &Log{
		Writer:   logs.NewWriter(t, logMost, logEvery),
		instance: instance,
		payloads: a.Payloads,
		to:       t,
	}, nil
}

// Take queues the line of a report. Take does not block. It reports false if the log is closed: the caller then gives
// the line to the new log.
func (l *Log) Take(r *report.Report) bool {
	var room [512]byte
	return l.queued(l.line(room[:0], r))
}

func (l *Log) queued(line []byte) bool {
	_, err := l.Write(line)
	return err == nil
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

// Decision queues the line of a decision about a call that needed approval, like Take.
func (l *Log) Decision(d approve.Decision) bool {
	b := d.At.AppendFormat([]byte(`{"time":"`), "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","level":"INFO","msg":"approval"`...)
	for _, member := range []struct{ name, value string }{
		{"server", d.Server},
		{"tool", clipped(d.Tool)},
		{"principal", d.Principal},
		{"session", d.Session},
		{"instance", l.instance},
		{"outcome", string(d.Outcome)},
		{"asked", d.Asked},
		{"operator", d.Operator},
	} {
		if member.value != "" {
			b = append(append(append(b, `,"`...), member.name...), `":`...)
			b = gjson.AppendJSONString(b, member.value)
		}
	}
	return l.queued(append(b, "}\n"...))
}

// line appends the line of a report, with its line break.
func (l *Log) line(b []byte, r *report.Report) []byte {
	b = append(b, `{"time":"`...)
	b = r.Began.AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","level":"INFO","msg":"call","server":`...)
	b = gjson.AppendJSONString(b, r.Server)
	b = gjson.AppendJSONString(append(b, `,"method":`...), clipped(r.Request.Method))
	if name := r.Request.GivenName(); name != "" {
		b = gjson.AppendJSONString(append(b, `,"name":`...), clipped(name))
	}
	if r.Principal != "" {
		b = gjson.AppendJSONString(append(b, `,"principal":`...), r.Principal)
	}
	if r.From != nil {
		if name := health.Client(r.From); name != "" && name != health.Unnamed {
			b = gjson.AppendJSONString(append(b, `,"client":`...), name)
		}
	}
	if r.Client.IsValid() {
		b = append(r.Client.AppendTo(append(b, `,"client_address":"`...)), '"')
	}
	if r.Session != "" {
		b = gjson.AppendJSONString(append(b, `,"session":`...), r.Session)
	}
	if l.instance != "" {
		b = gjson.AppendJSONString(append(b, `,"instance":`...), l.instance)
	}
	if r.Front != "" {
		b = gjson.AppendJSONString(append(b, `,"front":`...), r.Front)
	}
	if r.Trace.IsValid() {
		b = append(hex.AppendEncode(append(b, `,"trace_id":"`...), r.Trace[:]), '"')
	}
	b = gjson.AppendJSONString(append(b, `,"era":`...), era.Name(r.Revision))
	if r.Speaks != "" {
		b = gjson.AppendJSONString(append(b, `,"server_era":`...), era.Name(r.Speaks))
	}
	b = gjson.AppendJSONString(append(b, `,"outcome":`...), r.Outcome.String())
	if r.Code != 0 {
		b = strconv.AppendInt(append(b, `,"code":`...), r.Code, 10)
	}
	b = strconv.AppendFloat(append(b, `,"duration_ms":`...), float64(r.Took.Microseconds())/1000, 'f', -1, 64)
	b = strconv.AppendInt(append(b, `,"bytes_in":`...), int64(r.Request.Len()), 10)
	if r.Answer != nil {
		b = strconv.AppendInt(append(b, `,"bytes_out":`...), int64(r.Answer.Len()), 10)
	}
	if l.payloads {
		b = appendPayload(b, "params", r.Request.Params)
		if r.Answer != nil {
			b = appendPayload(b, "result", r.Answer.Result)
			b = appendPayload(b, "error", r.Answer.Error)
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

// These constants bound one line.
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

// Close writes the queued lines and closes the file. When done is closed, Close stops waiting for
// a blocked file, and the queued lines are lost.
func (l *Log) Close(done <-chan struct{}) {
	if !l.Writer.Close(done) {
		l.to.log.Warn("the access log does not accept lines: queued lines are lost")
	} else if err := l.to.close(); err != nil {
		l.to.log.Warn("access log", "err", err)
	}
}

// target is the file or the stream that gets the lines.
type target struct {
	io.Writer
	path string   // empty for stdout and stderr
	file *os.File // nil without a path, and after a failed attempt to open it
	err  error    // why the file could not be opened
	log  *slog.Logger
}

var _ logs.Sink = (*target)(nil)

// open opens the file for appending. open refuses a pipe, which may block.
func (t *target) open() error {
	if info, err := os.Stat(t.path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return errors.New("is a pipe, which may block: name a file, stdout or stderr")
	}
	f, err := os.OpenFile(t.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t.file, t.Writer = f, f
	return nil
}

func (t *target) Write(lines []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	return sanitize.JSONWriter(t.Writer).Write(lines)
}

// Follow opens the file again after it was moved or removed, such as by log rotation. Follow reports whether it
// opened the file.
func (t *target) Follow() bool {
	if t.path == "" {
		return false
	}
	if t.file != nil {
		now, err := os.Stat(t.path)
		ours, oursErr := t.file.Stat()
		if err == nil && oursErr == nil && os.SameFile(now, ours) {
			return false
		}
		_ = t.close() // the file is gone in any case
	}
	t.err = t.open()
	return t.err == nil
}

func (t *target) close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

func (t *target) Failed(err error) {
	if err != nil {
		t.log.Error("the access log cannot be written: lines are lost", "err", err)
	} else {
		t.log.Info("the access log can be written again")
	}
}

func (t *target) LeftOut(lines uint64) {
	t.log.Warn("lines of the access log are lost: it is written too slowly", "count", lines)
}
