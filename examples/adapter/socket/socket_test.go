package socket

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns an adapter that connects to serve, which gets each connection until the test ends.
func start(t *testing.T, o conn.Options, serve func(net.Conn)) *Adapter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	o.Log = slog.New(slog.DiscardHandler)
	a, err := New("fake", Config{Address: "tcp://" + l.Addr().String()}, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fake is the suite's server.
func fake(c net.Conn) {
	s := &adaptertest.Server{Die: func() { c.Close() }}
	_ = s.ServeLines(c, c) // it ends with the connection
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, func(t *testing.T) bridge.Adapter { return start(t, conn.Options{}, fake) })
}

// request is a request as the servers of these tests parse it.
type request struct {
	ID     json.RawMessage
	Method string
}

// answer answers initialize.
func (r request) answer(c net.Conn) {
	fmt.Fprintf(c, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`+"\n", r.ID)
}

func TestIntake(t *testing.T) {
	adaptertest.Intake(t, start(t, conn.Options{}, func(c net.Conn) {
		rest := ""
		for lines := bufio.NewScanner(c); lines.Scan(); {
			var r request
			_ = json.Unmarshal(lines.Bytes(), &r)
			first, second := adaptertest.Halves(string(r.ID))
			switch {
			case r.Method == "initialize":
				r.answer(c)
			case r.Method == adaptertest.Rest:
				fmt.Fprintln(c, rest)
			case bytes.Contains(lines.Bytes(), []byte("halves")):
				fmt.Fprint(c, first)
				rest = second
			case r.Method == "tools/call":
				fmt.Fprintln(c, first+second)
			}
		}
	}))
}

// An answer above the limit fails its own call only.
func TestTooLarge(t *testing.T) {
	up := adaptertest.Open(t, start(t, conn.Options{MaxMessage: 1000}, fake), &adaptertest.Client{})
	pad := strings.Repeat("x", 1000+conn.EnvelopeRoom)
	o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"result":{"pad":"`+pad+`"}}}`)
	if o.Err != nil || !strings.Contains(o.Answer, "larger than the limit of 1000 bytes") {
		t.Errorf("the call ended with %.300q, %v", o.Answer, o.Err)
	}
	if got := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"result":{"n":1}}}`).Result(t); got != `{"n":1}` {
		t.Errorf("result = %s", got)
	}
}

// A server that sends requests without end and reads no answer loses its connection. The call that it has read may have
// had an effect; a later one was surely not sent.
func TestUnread(t *testing.T) {
	a := start(t, conn.Options{MaxMessage: 1000}, func(c net.Conn) {
		for lines := bufio.NewScanner(c); lines.Scan(); {
			var r request
			_ = json.Unmarshal(lines.Bytes(), &r)
			switch r.Method {
			case "initialize":
				r.answer(c)
			case "tools/call":
				ping := `{"jsonrpc":"2.0","method":"ping","id":"` + strings.Repeat("x", 500) + `"}`
				for {
					if _, err := fmt.Fprintln(c, ping); err != nil {
						return
					}
				}
			}
		}
	})
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, a, rest)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
	o := adaptertest.Call(t.Context(), t, up, nil, call)
	if !errors.Is(o.Err, bridge.ErrLost) || errors.Is(o.Err, bridge.ErrUnsent) {
		t.Errorf("the call that was under way ended with %q, %v, want ErrLost alone", o.Answer, o.Err)
	}
	if err := rest.WaitGone(t); !errors.Is(err, conn.ErrFull) {
		t.Errorf("Gone(%v), want ErrFull", err)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, call); !errors.Is(o.Err, bridge.ErrUnsent) {
		t.Errorf("a later call ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
	}
}

func TestNobodyListens(t *testing.T) {
	a, err := New("fake", Config{Address: "unix://" + filepath.ToSlash(filepath.Join(t.TempDir(), "none"))}, conn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || e.Kind != bridge.ErrUnavailable || e.Told() != "server fake: it cannot be connected to" {
		t.Errorf("Open: %v, want ErrUnavailable, without the address for clients", err)
	}
}

func TestValidate(t *testing.T) {
	for address, ok := range map[string]bool{
		"tcp://127.0.0.1:9000": true, "tcp://[::1]:9000": true, "unix:///run/mcp.sock": true,
		"": false, "127.0.0.1:9000": false, "tcp://127.0.0.1": false, "tcp://:9000": false, "tcp://a:b@host:1": false,
		"unix://run/mcp.sock": false, "unix://": false, "http://127.0.0.1:9000": false,
	} {
		if err := (Config{Address: address}).Validate(); (err == nil) != ok {
			t.Errorf("Validate of %q: %v", address, err)
		}
	}
}
