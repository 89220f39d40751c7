package adaptertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Server is the suite's server, without a wire. The user of the suite connects it to a wire: Receive
// handles a message that arrives, and Send carries the server's messages.
//
// The params of a request control the server. They may have
//
//	say    messages that the server sends first, in which the strings "$id" and
//	       "$token" stand for the request's id and progress token
//	await  a text: the server continues after it has received a notification or an
//	       answer that contains the text, whether before or after the request
//	then   "hang": the server does not answer; "die": its wire is lost
//	error  the raw error that is the answer
//
// Otherwise, the answer has the id and the params of the request. If "seen" is true, the answer also
// has all messages received so far. In initialize, the member "initialize" of the params controls the
// server, and its "result" is the answer.
//
// A Modern server answers server/discover, and refuses initialize.
type Server struct {
	// Send puts a message on the wire: one line, without the line break. about is the raw id of the
	// request to which the message belongs, or nil. The server calls Send once at a time, in the order
	// of the messages.
	Send func(about, line []byte)
	// Die ends the wire without another message.
	Die func()
	// Modern makes the server one of 2026-07-28.
	Modern bool

	mu   sync.Mutex          // guards the fields below, and the order of Send
	seen []json.RawMessage   // the messages received, without large ones
	wait map[string]*request // by raw id: the requests that await a text
}

// request is a request in flight.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	orders
	meta
}

type orders struct {
	Say    []json.RawMessage `json:"say"`
	Await  string            `json:"await"`
	Then   string            `json:"then"`
	Error  json.RawMessage   `json:"error"`
	Result json.RawMessage   `json:"result"`
	Seen   bool              `json:"seen"`
}

type meta struct {
	Meta struct {
		Token json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

// initializeResult is the default result of initialize, whose bytes the bridge must not change.
const initializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"x-new":{"n":12345678901234567890}},` +
	`"serverInfo":{"name":"fake","version":"1","x-build":1.50},"instructions":"a\u00e9\"b","x-other":[1e400,null]}`

// discoverResult is the result of a Modern server's server/discover, whose bytes the bridge must not
// change. initializeError is a Modern server's answer to initialize.
const (
	discoverResult = `{"resultType":"complete","supportedVersions":["2027-11-11","2026-07-28"],"capabilities":{"tools":{"listChanged":true},"x-new":{"n":12345678901234567890}},` +
		`"instructions":"a\u00e9\"b","x-other":[1e400,null],"ttlMs":1.0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`
	initializeError = `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}`
)

// Receive handles a message from the wire. The caller keeps the order of the wire.
func (s *Server) Receive(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line = bytes.Clone(line)
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		s.seen = append(s.seen, json.RawMessage(fmt.Sprintf(`"broken: %v"`, err)))
		return
	}
	if len(line) < 1<<16 { // a larger message comes back in its answer anyway
		s.seen = append(s.seen, line)
	}
	if r.ID == nil || r.Method == "" {
		for id, r := range s.wait {
			if strings.Contains(string(line), r.Await) {
				delete(s.wait, id)
				s.finish(r)
			}
		}
		return
	}
	// Params that are no such object control nothing.
	_ = json.Unmarshal(r.Params, &r.meta)
	switch {
	case r.Method == "initialize" && s.Modern:
		r.Error = json.RawMessage(initializeError)
	case r.Method == "server/discover" && s.Modern:
		r.Result = json.RawMessage(discoverResult)
	case r.Method == "initialize":
		var p struct {
			Initialize orders `json:"initialize"`
		}
		_ = json.Unmarshal(r.Params, &p)
		if r.orders = p.Initialize; r.Result == nil {
			r.Result = json.RawMessage(initializeResult)
		}
	default:
		_ = json.Unmarshal(r.Params, &r.orders)
	}
	for _, m := range r.Say {
		m = bytes.ReplaceAll(m, []byte(`"$id"`), r.ID)
		m = bytes.ReplaceAll(m, []byte(`"$token"`), r.Meta.Token)
		s.Send(r.ID, m)
	}
	if r.Await != "" && !s.has(r.Await) {
		if s.wait == nil {
			s.wait = map[string]*request{}
		}
		s.wait[string(r.ID)] = &r
		return
	}
	s.finish(&r)
}

// has reports whether a notification or an answer with that text has arrived.
func (s *Server) has(text string) bool {
	for _, line := range s.seen {
		var r request
		if json.Unmarshal(line, &r) == nil && (r.ID == nil || r.Method == "") && strings.Contains(string(line), text) {
			return true
		}
	}
	return false
}

func (s *Server) finish(r *request) {
	line := append([]byte(`{"jsonrpc":"2.0","id":`), r.ID...)
	switch {
	case r.Then == "hang":
		return
	case r.Then == "die":
		s.Die()
		return
	case r.Error != nil:
		line = append(append(line, `,"error":`...), r.Error...)
	case r.Result != nil:
		line = append(append(line, `,"result":`...), r.Result...)
	default:
		line = append(append(line, `,"result":{"id":`...), r.ID...)
		if r.Params != nil {
			line = append(append(line, `,"params":`...), r.Params...)
		}
		if r.Seen {
			line = append(append(append(line, `,"seen":[`...), bytes.Join(raws(s.seen), []byte(","))...), ']')
		}
		line = append(line, '}')
	}
	s.Send(r.ID, append(line, '}'))
}

func raws(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i, one := range all {
		out[i] = one
	}
	return out
}

// ServeLines serves newline-delimited messages until in ends. It sets Send.
func (s *Server) ServeLines(in io.Reader, out io.Writer) error {
	s.Send = func(_, line []byte) { _, _ = out.Write(append(line, '\n')) } // if the peer has ended, in ends as well
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.Receive(line[:len(line)-1])
	}
}
