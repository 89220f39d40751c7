package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// desk is a client at the two pipes of Serve.
type desk struct {
	t      testing.TB
	g      gateway.Gateway
	s      *wiretest.Server
	in     net.Conn // what the client writes to
	stop   context.CancelCauseFunc
	served chan struct{} // closed when Serve has returned
	err    error         // what it returned

	mu    sync.Mutex // guards lines
	lines []string
}

var errStop = errors.New("stopped by the test")

// sit starts Serve for a client in a bubble. It checks at the end that nothing
// is left.
func sit(t testing.TB, s *wiretest.Server, so gateway.ServerOptions, bo gateway.Options, o DownstreamOptions) *desk {
	so.Adapter = s
	d := sitBy(t, so, bo, o)
	d.s = s
	return d
}

func sitBy(t testing.TB, so gateway.ServerOptions, bo gateway.Options, o DownstreamOptions) *desk {
	so.Name = "fake"
	bo.Servers = []gateway.ServerOptions{so}
	bo.Log = slog.New(slog.DiscardHandler)
	o.Log = bo.Log
	d := &desk{t: t, g: gateway.New(bo), served: make(chan struct{})}
	in, theirIn := net.Pipe()
	out, theirOut := net.Pipe()
	d.in = in
	ctx, stop := context.WithCancelCause(context.Background())
	d.stop = stop
	heard := make(chan struct{})
	go func() {
		defer close(d.served)
		d.err = Serve(ctx, d.g, "fake", theirIn, theirOut, o)
		_ = theirOut.Close()
	}()
	go func() {
		defer close(heard)
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				if line != "" {
					t.Errorf("what comes last is no line: %q", line)
				}
				return
			}
			d.mu.Lock()
			d.lines = append(d.lines, strings.TrimSuffix(line, "\n"))
			d.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-d.served
		<-heard
		stop(nil)
		d.g.Close(context.Background())
		if st := d.g.Status()[0]; st.Sessions > 0 || st.Lanes > 0 {
			t.Errorf("%d sessions and %d connections are left", st.Sessions, st.Lanes)
		}
		room := int(bo.MaxBytes)
		if room == 0 {
			room = 512 << 20
		}
		if !d.g.Room("").Reserve(room) {
			t.Error("bytes are reserved still")
		}
	})
	return d
}

// serving starts Serve at these pipes, for a server that a makes.
func serving(t *testing.T, ctx context.Context, a bridge.Adapter, in io.Reader, out io.Writer, o DownstreamOptions) <-chan error {
	o.Log = slog.New(slog.DiscardHandler)
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "fake", Adapter: a}}, Log: o.Log})
	t.Cleanup(func() { g.Close(context.Background()) })
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, g, "fake", in, out, o) }()
	return served
}

// seated runs f in a bubble with a client whose handshake is done.
func seated(t *testing.T, revision string, f func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := sit(t, &wiretest.Server{}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{})
		d.handshake(revision)
		f(t, d)
	})
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

func (d *desk) handshake(revision string) {
	d.t.Helper()
	d.say(fmt.Sprintf(initialize, revision), initialized)
	if got := d.hear(); len(got) != 1 || gjson.Get(got[0], "result.protocolVersion").Str != revision || gjson.Get(got[0], "id").Raw != "0" {
		d.t.Fatalf("initialize = %q", got)
	}
}

// say writes lines, and waits until all has happened that follows from them.
func (d *desk) say(lines ...string) {
	d.t.Helper()
	d.write(strings.Join(lines, "\n") + "\n")
}

func (d *desk) write(text string) {
	d.t.Helper()
	if _, err := d.in.Write([]byte(text)); err != nil {
		d.t.Errorf("write: %v", err)
	}
	synctest.Wait()
}

// hear returns the output since the last time.
func (d *desk) hear() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	for _, l := range lines {
		if _, err := jsonrpc.Parse([]byte(l)); err != nil {
			d.t.Errorf("output %.200q: %v", l, err)
		}
	}
	return lines
}

// expect compares what has come with lines that may be abbreviated by … at
// their end.
func (d *desk) expect(want ...string) {
	d.t.Helper()
	got := d.hear()
	if !slices.EqualFunc(got, want, func(got, want string) bool {
		short, ok := strings.CutSuffix(want, "…")
		return got == want || ok && strings.HasPrefix(got, short)
	}) {
		d.t.Errorf("got  %.2000q\nwant %.2000q", got, want)
	}
}

// leave closes the client's side and returns what Serve returned.
func (d *desk) leave() error {
	_ = d.in.Close()
	<-d.served
	return d.err
}

func tool(id, name, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"tok"}}}`, id, name, args)
}

func fault(id string, code int) string {
	if id != "" {
		id = `"id":` + id + `,`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0",%s"error":{"code":%d,…`, id, code)
}

// lines returns the lines of an output that cannot be closed and has no deadline.
func lines(out *adaptertest.Log) []string {
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}
