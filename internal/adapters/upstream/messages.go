package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/conn"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// Parser makes messages of what one reader of a connection reads, and tells the
// log of what is none. It is for one goroutine.
type Parser struct {
	Conn *conn.Conn
	Log  *slog.Logger
	// Warning is logged, once in a while, when there was what is no message, and as
	// a detail how that begins. Unit is what is counted then. Empty means that
	// neither is: what comes from an address may be another's secret.
	Warning, Unit string

	bad    int // not yet told of
	warned time.Time
}

// Parse hands on the messages of text, a part of buf, to deliver. A message owns
// what it is made of, and has the room that in has taken. It takes buf.
func (p *Parser) Parse(buf *jsonrpc.Buffer, text []byte, in *conn.Intake, deliver func(*jsonrpc.Message)) {
	m, err := jsonrpc.Parse(text)
	if err == nil {
		in.Give(m.Own(buf))
		deliver(m)
		return
	}
	if jsonrpc.IsBatch(text) {
		// Only 2025-03-26 knows batches, and a server has no need to send them;
		// one that does is understood all the same (A9).
		if all, err := jsonrpc.Split(text); err == nil && len(all) > 0 {
			for _, one := range all {
				if m, err := jsonrpc.Parse(one); err == nil {
					deliver(m)
				} else {
					p.invalid(one, err)
				}
			}
			return // the messages refer to buf: it is left to the garbage collector
		}
	}
	p.invalid(text, err)
	buf.Free()
}

// warnEvery is how often the log is told of what is no message.
const warnEvery = time.Minute

func (p *Parser) invalid(text []byte, err error) {
	p.Conn.Invalid(text, err)
	if p.Warning == "" {
		p.Log.Debug("not a message", "err", err)
		return
	}
	p.Log.Debug("not a message", "text", string(text[:min(len(text), 200)]))
	if p.bad++; time.Since(p.warned) >= warnEvery {
		p.Warn()
	}
}

// Warn tells the log of what it was not told of yet.
func (p *Parser) Warn() {
	if p.bad > 0 {
		p.Log.Warn(p.Warning, p.Unit, p.bad)
		p.bad, p.warned = 0, time.Now()
	}
}

// Signal wakes those who wait for something that a lock guards: room in a queue,
// or something in it. The same lock guards the Signal.
type Signal struct{ c chan struct{} }

// Await unlocks mu and waits for Wake. If ctx ends first, it returns why.
func (s *Signal) Await(ctx context.Context, mu *sync.Mutex) error {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	c := s.c
	mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wake lets all go on who wait. The caller holds the lock.
func (s *Signal) Wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
