package wiretest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Result is Server's result for initialize.
const Result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"x-vendor":{"k":1}},"serverInfo":{"name":"fake","version":"1"}}`

// Server is an MCP server in memory. Its tools are:
//
//	echo   answers with its arguments
//	fail   answers that it has failed
//	steps  reports progress arguments.n times, then answers
//	log    sends a log message, then answers
//	ask    asks the client to sample, and answers with the client's answer
//	wait   answers when Answer is called
//	late   answers after arguments.after (a duration)
//	large  answers with arguments.n bytes
//	quit   ends the connection
//
// It has no prompts; it answers other methods with their names.
type Server struct {
	Before func(ctx context.Context) error // called before a handshake; may be nil
	Tools  string                          // listed tools, raw JSON; empty means none

	mu      sync.Mutex // guards the rest
	conns   []*Conn
	opened  int
	got     []string
	waiting []waiting
}

var _ bridge.Adapter = (*Server)(nil)

// Conn is a connection. Its goroutine plays the server, in the order of the wire.
type Conn struct {
	*conn.Conn
	s      *Server
	rest   bridge.Client
	server *bridge.Greeting
	queue  chan func()
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
	asked  map[string]string // maps the raw id of each question to its call; used only by the connection's goroutine
	asks   int
}

type waiting struct {
	c  *Conn
	id string
}

// Open implements bridge.Adapter.
func (s *Server) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	s.mu.Lock()
	s.opened++
	s.mu.Unlock()
	if s.Before != nil {
		if err := s.Before(ctx); err != nil {
			return nil, err
		}
	}
	c := &Conn{
		s:     s,
		rest:  rest,
		queue: make(chan func(), 1<<12),
		done:  make(chan struct{}),
		asked: map[string]string{},
	}
	c.Conn = conn.New("fake", c, rest, conn.Timeouts{Idle: 5 * time.Minute, Max: time.Hour})
	c.wg.Go(c.run)
	var err error
	if c.server, err = conn.Handshake(ctx, c.Conn, from, ""); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	return c, nil
}

func (c *Conn) run() {
	for {
		select {
		case <-c.done:
			return
		case do := <-c.queue:
			do()
		}
	}
}

func (c *Conn) do(f func()) {
	select {
	case c.queue <- f:
	case <-c.done:
	}
}

// Send implements conn.Sender.
func (c *Conn) Send(_ context.Context, o conn.Outgoing) error {
	text := string(o.Line.B)
	o.Line.Free()
	c.do(func() { c.take(text) })
	return nil
}

func (c *Conn) take(text string) {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err) // the bridge sends only messages
	}
	switch m.Method {
	case "initialize":
		if m.IsRequest() {
			c.answer(string(m.ID), Result)
		}
		return
	case "notifications/initialized":
		return
	}
	c.s.mu.Lock()
	c.s.got = append(c.s.got, text)
	c.s.mu.Unlock()
	switch {
	case m.IsResponse():
		if call, ok := c.asked[string(m.ID)]; ok {
			delete(c.asked, string(m.ID))
			member, raw := m.Payload(nil)
			c.answer(call, fmt.Sprintf(`{"%s":%s}`, member, bytes.Join(raw, nil)))
		}
	case m.Method == "tools/call" && m.IsRequest():
		c.tool(m)
	case m.IsRequest() && strings.HasPrefix(m.Method, "prompts/"):
		c.hear(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
	case m.IsRequest() && m.Method == "tools/list":
		c.answer(string(m.ID), `{"method":"tools/list","tools":[`+c.s.Tools+`]}`)
	case m.IsRequest():
		c.answer(string(m.ID), `{"method":"`+m.Method+`"}`)
	}
}

func (c *Conn) tool(m *jsonrpc.Message) {
	id, args := string(m.ID), gjson.GetBytes(m.Params, "arguments")
	switch m.Name() {
	case "echo":
		c.answer(id, fmt.Sprintf(`{"echo":%s}`, cmp.Or(args.Raw, "null")))
	case "fail":
		c.answer(id, `{"content":[{"type":"text","text":"no such file"}],"isError":true}`)
	case "steps":
		for i := range min(args.Get("n").Int(), 1000) {
			if m.Token() != nil {
				c.hear(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Token(), i+1))
			}
		}
		c.answer(id, `{"steps":true}`)
	case "log":
		c.hear(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`)
		c.answer(id, `{"logged":true}`)
	case "ask":
		c.asks++
		q := fmt.Sprintf(`"q%d"`, c.asks)
		c.asked[q] = id
		c.hear(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`, q))
	case "wait":
		c.s.mu.Lock()
		c.s.waiting = append(c.s.waiting, waiting{c, id})
		c.s.mu.Unlock()
	case "late":
		after, err := time.ParseDuration(args.Get("after").String())
		if err != nil {
			panic(err)
		}
		c.wg.Go(func() {
			select {
			case <-time.After(after):
				c.do(func() { c.answer(id, `{"late":true}`) })
			case <-c.done:
			}
		})
	case "large":
		c.answer(id, `{"large":"`+strings.Repeat("x", int(args.Get("n").Int()))+`"}`)
	case "quit":
		if err := error(&bridge.Error{
			Server: "fake",
			Kind:   bridge.ErrLost,
			Public: "it died",
		}); c.Fail(err) {
			c.rest.Gone(err)
		}
	default:
		c.hear(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool"}}`, id))
	}
}

// answer sends a result. Only the connection's goroutine may call it.
func (c *Conn) answer(id, result string) {
	c.hear(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

// hear delivers a line to the bridge. Only the connection's goroutine may call it.
func (c *Conn) hear(line string) {
	buf := jsonrpc.NewBuffer(len(line))
	buf.B = append(buf.B, line...)
	m, err := jsonrpc.Parse(buf.B)
	if err != nil {
		panic(err)
	}
	c.Deliver(m.Own(buf))
}

// Server implements bridge.Upstream.
func (c *Conn) Server() *bridge.Greeting { return c.server }

// Close implements bridge.Upstream.
func (c *Conn) Close(context.Context) error {
	c.Fail(&bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrLost,
		Public: "its connection was closed",
		Err:    errors.New("closed"),
	})
	c.once.Do(func() { close(c.done) })
	c.wg.Wait()
	return nil
}

// Say makes the newest connection send a line.
func (s *Server) Say(line string) {
	s.mu.Lock()
	c := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	c.do(func() { c.hear(line) })
}

// Answer answers the oldest call of the tool wait.
func (s *Server) Answer(result string) {
	s.mu.Lock()
	w := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	s.mu.Unlock()
	w.c.do(func() { w.c.answer(w.id, result) })
}

// Waiting returns the number of calls of the tool wait that have no answer yet.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func (s *Server) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// Got returns the messages since the last Got, without handshakes.
func (s *Server) Got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}
