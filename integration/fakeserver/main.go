// Fakeserver is a stdio MCP server that misbehaves: it crashes, hangs, floods and ignores signals. The integration
// tests run it behind the bridge, hundreds of processes at a time. So it is a program without the race detector, and
// without the SDK, which does not allow such errors.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	deaf   = flag.Bool("deaf", false, "ignore SIGTERM and the end of stdin")
	parent = flag.Bool("parent", false, "start a process of one's own that is as deaf")
	idle   = flag.Bool("idle", false, "only exist: what -parent starts")
)

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		RequestID       json.RawMessage `json:"requestId"`
		Name            string          `json:"name"`
		Meta            struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
		Arguments struct {
			Message string `json:"message"`
			MS      int    `json:"ms"`
			Bytes   int    `json:"bytes"`
		} `json:"arguments"`
	} `json:"params"`
}

// server is the only session of the process.
type server struct {
	mu        sync.Mutex // guards the rest, and stdout
	out       *bufio.Writer
	calls     map[string]string // id of a call by its argument message
	cancelled []string          // ids that the client has cancelled
}

func main() {
	flag.Parse()
	if *deaf || *idle {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if *idle {
		forever()
	}
	if *parent {
		cmd := exec.Command(os.Args[0], "-idle")
		cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	s := &server{
		out:   bufio.NewWriter(os.Stdout),
		calls: map[string]string{},
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				fmt.Fprintln(os.Stderr, "not JSON:", err)
			} else {
				s.handle(&m)
			}
		}
		if err != nil {
			break
		}
	}
	if *deaf {
		forever()
	}
}

// forever blocks. The runtime would report select {} as a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func (s *server) handle(m *message) {
	switch m.Method {
	case "initialize":
		s.answer(m, map[string]any{
			"protocolVersion": m.Params.ProtocolVersion,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "fake", "version": "0"},
		})
	case "ping":
		s.answer(m, map[string]any{})
	case "tools/list":
		s.answer(m, map[string]any{"tools": []any{map[string]any{"name": "echo", "inputSchema": map[string]any{"type": "object"}}}})
	case "notifications/cancelled":
		s.mu.Lock()
		s.cancelled = append(s.cancelled, string(m.Params.RequestID))
		s.mu.Unlock()
	case "tools/call":
		s.call(m)
	default:
		if m.ID != nil {
			s.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "no method " + m.Method}})
		}
	}
}

func (s *server) call(m *message) {
	args := m.Params.Arguments
	switch m.Params.Name {
	case "echo":
		s.text(m, args.Message)
	case "sleep": // answers out of order
		time.AfterFunc(time.Duration(args.MS)*time.Millisecond, func() { s.text(m, args.Message) })
	case "hang": // never answers
		s.mu.Lock()
		s.calls[args.Message] = string(m.ID)
		s.mu.Unlock()
	case "cancelled": // lists the hanging calls that were cancelled
		s.mu.Lock()
		id, ok := s.calls[args.Message]
		cancelled := false
		for _, c := range s.cancelled {
			cancelled = cancelled || c == id
		}
		s.mu.Unlock()
		s.text(m, fmt.Sprintf("known=%v cancelled=%v", ok, cancelled))
	case "flood": // sends more than any limit allows
		if token := m.Params.Meta.ProgressToken; token != nil {
			s.send(map[string]any{
				"jsonrpc": "2.0",
				"method":  "notifications/progress",
				"params":  map[string]any{"progressToken": token, "progress": 1},
			})
		}
		s.text(m, strings.Repeat("x", args.Bytes))
	case "complain": // writes long lines to stderr, whose length doubles in JSON
		fmt.Fprint(os.Stderr, strings.Repeat(strings.Repeat(`"`, 1000)+"\n", args.Bytes))
		s.text(m, "")
	case "pid":
		s.text(m, strconv.Itoa(os.Getpid()))
	case "crash":
		os.Exit(3)
	default:
		s.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32602, "message": "no tool " + m.Params.Name}})
	}
}

func (s *server) text(m *message, text string) {
	s.answer(m, map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
}

func (s *server) answer(m *message, result map[string]any) {
	s.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

func (s *server) send(m map[string]any) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Write(append(line, '\n'))
	s.out.Flush()
}
