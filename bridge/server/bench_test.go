package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// echoVariable makes this test binary a server, when it is told to run
// TestEchoServer: an MCP server on stdio, or with the value echoHTTP an HTTP API.
const (
	echoVariable = "BRIDGE_BENCH_ECHO"
	echoHTTP     = "http"
)

// BenchmarkCall measures one call after the other whose arguments, of the size
// in its name, come back as its result: to a server on stdio, directly and
// through the bridge over each of its transports; to one of two servers that are
// offered as one; through a second bridge, whose server is the first, over
// Streamable HTTP on both sides; and to an HTTP API, over Streamable HTTP.
//
// Bytes and allocations are those of this process. That is the bridge and the
// client, but not the server; the client sends prepared bytes and reads into
// buffers that it keeps, so that next to nothing is its own.
func BenchmarkCall(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"100B", 100}, {"64KB", 64 << 10}, {"1MB", 1 << 20}} {
		for _, way := range []struct {
			name string
			dial func(testing.TB) caller
		}{{"direct", dialDirect}, {"streamable", dialStreamable}, {"sse", dialSSE}, {"together", dialTogether}, {"twice", dialTwice}, {"rest", dialREST}} {
			b.Run(way.name+"/"+size.name, func(b *testing.B) {
				c := way.dial(b)
				payload := strings.Repeat("x", size.bytes)
				request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"` + payload + `"}}}`)
				answer, err := c.call(request)
				if err != nil {
					b.Fatal(err)
				}
				if !bytes.Contains(answer, []byte(payload)) || !bytes.Contains(answer, []byte(`"id":7`)) {
					b.Fatalf("call = %.200q, want the payload under the id 7", answer)
				}
				want := len(answer)
				b.ReportAllocs()
				b.SetBytes(2 * int64(size.bytes)) // there and back
				for b.Loop() {
					answer, err := c.call(request)
					if err != nil {
						b.Fatal(err)
					}
					if len(answer) != want {
						b.Fatalf("call = %.200q of %d bytes, want %d bytes", answer, len(answer), want)
					}
				}
			})
		}
	}
}

// A caller is a client with its session open.
type caller interface {
	// call returns the answer, which is valid until the next call.
	call(request []byte) ([]byte, error)
}

const (
	handshake   = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestEchoServer is no test: it is the server that the benchmark starts, and
// does nothing otherwise. It starts no process.
func TestEchoServer(t *testing.T) {
	serve := echo
	switch os.Getenv(echoVariable) {
	case "":
		return
	case echoHTTP:
		serve = echoAPI
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // before the test's own report gets onto stdout
}

func echo(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 2<<20) // a line must fit
	var out []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := jsonrpc.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return err
		}
		if !m.IsRequest() {
			continue
		}
		result := m.Params
		switch m.Method {
		case "initialize":
			result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`)
		case "tools/list":
			result = []byte(`{"tools":[]}`)
		}
		out = append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), m.ID...), `,"result":`...)
		out = append(append(out, result...), "}\n"...)
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
}

// echoAPI is an HTTP API whose only operation answers with the message that it gets. It writes its address, and ends
// with its input.
func echoAPI(r io.Reader, w io.Writer) error {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	defer api.Close()
	if _, err := fmt.Fprintln(w, strings.TrimPrefix(api.URL, "http://")); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// echoCommand is how the server is started. A process that is the server
// already refuses: it must not start itself without end.
func echoCommand(tb testing.TB) stdio.Config {
	tb.Helper()
	if os.Getenv(echoVariable) != "" {
		tb.Fatalf("%s is set: this process is a server itself", echoVariable)
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return stdio.Config{Command: self, Args: []string{"-test.run=^TestEchoServer$"}, Env: map[string]string{echoVariable: "1"}}
}

// direct calls a child of its own.
type direct struct {
	in   io.Writer
	out  *bufio.Reader
	line []byte // of the request
}

func dialDirect(tb testing.TB) caller {
	in, out := startEcho(tb, "1")
	d := &direct{in: in, out: out}
	if _, err := d.call([]byte(handshake)); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.WriteString(in, initialized+"\n"); err != nil {
		tb.Fatal(err)
	}
	return d
}

// startEcho starts the server that is meant by a value of echoVariable. It is
// ended with the test.
func startEcho(tb testing.TB, value string) (io.Writer, *bufio.Reader) {
	c := echoCommand(tb)
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Env = append(os.Environ(), echoVariable+"="+value)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	return in, bufio.NewReaderSize(out, 2<<20)
}

func (d *direct) call(request []byte) ([]byte, error) {
	d.line = append(append(d.line[:0], request...), '\n')
	if _, err := d.in.Write(d.line); err != nil {
		return nil, err
	}
	return d.out.ReadSlice('\n')
}

// child is the server as a child process.
func child(tb testing.TB, name string) config.Server {
	tb.Helper()
	s := config.DefaultServer(name, "")
	command := echoCommand(tb)
	s.Stdio = &command
	return s
}

// serve runs a bridge in front of the servers and returns its address.
func serve(tb testing.TB, servers ...config.Server) string {
	tb.Helper()
	c := config.Default()
	c.Servers = servers
	address, _ := serveAs(tb, &c, slog.New(slog.DiscardHandler))
	return address
}

// serveAs runs a bridge as configured, but at any port. stop ends it; so does the test,
// all of its bridges at once.
func serveAs(tb testing.TB, c *config.Config, log *slog.Logger) (address string, stop func()) {
	tb.Helper()
	c.Listen = "127.0.0.1:0"
	srv := server.New(c, log)
	l, err := srv.Listen(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return l.Addr().String(), stop
}

// A wire is an HTTP connection of the least client that works.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte // of the request
	body []byte // of the response
}

func dial(tb testing.TB, address string) *wire {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
}

// post sends a message and reads the response.
func (w *wire) post(path, headers string, message []byte) (status int, header http.Header, err error) {
	if err := w.send(path, headers, message); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	w.body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, err
}

func (w *wire) send(path, headers string, message []byte) error {
	h := append(append(append(w.head[:0], "POST "...), path...), " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n"...)
	h = append(append(h, headers...), "Content-Length: "...)
	h = append(strconv.AppendInt(h, int64(len(message)), 10), "\r\n\r\n"...)
	w.head = append(h, message...)
	_, err := w.conn.Write(w.head)
	return err
}

// receive reads the response to a POST in the fast way: it knows what to
// expect.
func (w *wire) receive(status string) ([]byte, error) {
	length := -1
	for first := true; ; first = false {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && !bytes.HasPrefix(line, []byte(status)) {
			return nil, fmt.Errorf("response begins with %q, want %q", line, status)
		}
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length = 0
			for _, digit := range value {
				length = 10*length + int(digit-'0')
			}
		}
	}
	if length < 0 {
		return nil, errors.New("the response has no Content-Length")
	}
	if cap(w.body) < length {
		w.body = make([]byte, length)
	}
	w.body = w.body[:length]
	_, err := io.ReadFull(w.in, w.body)
	return w.body, err
}

// streamable calls over Streamable HTTP.
type streamable struct {
	*wire
	headers string
}

func dialStreamable(tb testing.TB) caller { return dialAt(tb, serve(tb, child(tb, "b"))) }

func dialTogether(tb testing.TB) caller { return dialAt(tb, serve(tb, child(tb, "a"), child(tb, "b"))) }

func dialTwice(tb testing.TB) caller {
	first := serve(tb, child(tb, "b"))
	s := config.DefaultServer("b", "")
	s.HTTP = &remote.Config{URL: "http://" + first + "/mcp", Transport: remote.TransportStreamable}
	return dialAt(tb, serve(tb, s))
}

func dialREST(tb testing.TB) caller {
	_, out := startEcho(tb, echoHTTP)
	address, err := out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	s := config.DefaultServer("b", "")
	s.Rest = &rest.Config{
		BaseURL: "http://" + strings.TrimSpace(address),
		Limits:  rest.Limits{Answer: 4 << 20}, // all that is measured
		Tools: []rest.Tool{{Key: "b__echo", Request: "POST /echo", Args: []rest.Arg{
			{Name: "message", Schema: []byte(`{"type":"string"}`)},
		}}},
	}
	return dialAt(tb, serve(tb, s))
}

func dialAt(tb testing.TB, address string) caller {
	s := &streamable{wire: dial(tb, address)}
	status, header, err := s.post("/mcp", "", []byte(handshake))
	if err != nil || status != http.StatusOK {
		tb.Fatalf("initialize: status %d, error %v, body %s", status, err, s.body)
	}
	s.headers = "Mcp-Session-Id: " + header.Get("Mcp-Session-Id") + "\r\nMCP-Protocol-Version: 2025-11-25\r\n"
	if status, _, err := s.post("/mcp", s.headers, []byte(initialized)); err != nil || status != http.StatusAccepted {
		tb.Fatalf("initialized: status %d, error %v, body %s", status, err, s.body)
	}
	return s
}

func (s *streamable) call(request []byte) ([]byte, error) {
	if err := s.send("/mcp", s.headers, request); err != nil {
		return nil, err
	}
	return s.receive("HTTP/1.1 200")
}

// legacy calls over HTTP+SSE: the answers come on a stream.
type legacy struct {
	*wire
	endpoint string
	events   *bufio.Reader
}

func dialSSE(tb testing.TB) caller {
	address := serve(tb, child(tb, "b"))
	stream := dial(tb, address)
	if _, err := io.WriteString(stream.conn, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		tb.Fatal(err)
	}
	resp, err := http.ReadResponse(stream.in, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		tb.Fatalf("GET /sse: %v, want 200, chunked", resp)
	}
	// resp.Body would lock and count for each piece.
	l := &legacy{wire: dial(tb, address), events: bufio.NewReaderSize(httputil.NewChunkedReader(stream.in), 2<<20)}
	endpoint, err := l.event()
	if err != nil {
		tb.Fatal(err)
	}
	l.endpoint = string(endpoint)
	if _, err := l.call([]byte(handshake)); err != nil {
		tb.Fatal(err)
	}
	if status, _, err := l.post(l.endpoint, "", []byte(initialized)); err != nil || status != http.StatusAccepted {
		tb.Fatalf("initialized: status %d, error %v, body %s", status, err, l.body)
	}
	return l
}

func (l *legacy) call(request []byte) ([]byte, error) {
	if err := l.send(l.endpoint, "", request); err != nil {
		return nil, err
	}
	if _, err := l.receive("HTTP/1.1 202"); err != nil {
		return nil, err
	}
	return l.event()
}

// event returns the data of the next event, which has to be on one line.
func (l *legacy) event() ([]byte, error) {
	for {
		line, err := l.events.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			return bytes.TrimRight(data, "\r\n"), nil
		}
	}
}
