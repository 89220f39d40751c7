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
	Error  json.RawMessage `json:"error"`
	Result struct {
		Content struct {
			Said string `json:"said"`
		} `json:"content"`
	} `json:"result"`
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
			Tag     string `json:"tag"`
			Ask     bool   `json:"ask"`
		} `json:"arguments"`
	} `json:"params"`
}

// server is the only session of the process.
type server struct {
	mu        sync.Mutex // guards the rest, and stdout
	out       *bufio.Writer
	calls     map[string]string // id of a call by its argument message
	cancelled []string          // ids that the client has cancelled
	listed    string            // name of the listed tool
	asked     map[string]func(said string)
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
		out:    bufio.NewWriter(os.Stdout),
		calls:  map[string]string{},
		listed: "echo",
		asked:  map[string]func(string){},
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
	case "": // the answer to a question
		s.mu.Lock()
		then := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if then != nil {
			then(m.Result.Content.Said + string(m.Error))
		}
	case "initialize":
		s.answer(m, map[string]any{
			"protocolVersion": m.Params.ProtocolVersion,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "fake", "version": "0"},
		})
	case "ping":
		s.answer(m, map[string]any{})
	case "tools/list":
		s.mu.Lock()
		name := s.listed
		s.mu.Unlock()
		s.answer(m, map[string]any{"tools": []any{map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}}}})
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
	case "storm": // sends list_changed repeatedly; the tools change before the last list_changed
		for i := range args.Bytes {
			if i == args.Bytes-1 {
				s.mu.Lock()
				s.listed = args.Message
				s.mu.Unlock()
			}
			s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
		}
		s.text(m, "")
	case "work": // records the call in a file and takes some time
		s.work(m)
	case "complain": // writes long lines to stderr, whose length doubles in JSON
		fmt.Fprint(os.Stderr, strings.Repeat(strings.Repeat(`"`, 1000)+"\n", args.Bytes))
		s.text(m, "")
	case "pid":
		s.text(m, strconv.Itoa(os.Getpid()))
	case "env":
		s.text(m, strings.Join(os.Environ(), "\n"))
	case "crash":
		os.Exit(3)
	default:
		s.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32602, "message": "no tool " + m.Params.Name}})
	}
}

// ledger is the file in which processes record the calls that they execute. Tests count these calls.
var ledger = flag.String("ledger", "", "note in this file what the tool work is called with")

// work records its call in the ledger, sends progress, may ask a question, and answers after some time. Meanwhile,
// other calls run.
func (s *server) work(m *message) {
	args, token := m.Params.Arguments, m.Params.Meta.ProgressToken
	f, err := os.OpenFile(*ledger, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(args.Tag + "\n")
		_ = f.Close()
	}
	if err != nil {
		s.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32603, "message": err.Error()}})
		return
	}
	for i := range 3 {
		if token != nil {
			s.send(map[string]any{
				"jsonrpc": "2.0",
				"method":  "notifications/progress",
				"params":  map[string]any{"progressToken": token, "progress": i + 1},
			})
		}
	}
	mine := *m
	end := func(text string) {
		time.AfterFunc(time.Duration(args.MS)*time.Millisecond, func() { s.text(&mine, text) })
	}
	if !args.Ask {
		end(args.Tag)
		return
	}
	id, _ := json.Marshal("about " + args.Tag)
	s.mu.Lock()
	s.asked[string(id)] = func(said string) { end(args.Tag + " " + said) }
	s.mu.Unlock()
	s.send(map[string]any{
		"jsonrpc": "2.0",
		"id":      json.RawMessage(id),
		"method":  "elicitation/create",
		"params":  map[string]any{"message": args.Tag, "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"said": map[string]any{"type": "string"}}}},
	})
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
