package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// valve is a wire with faults: what connects to it reaches another address.
type valve struct {
	address string

	mu     sync.Mutex    // guards what follows
	to     string        // nobody connects to the valve before it is known
	delay  time.Duration // of answers
	shut   bool
	silent chan struct{} // closed when bytes pass again; nil when they do
	conns  map[net.Conn]bool
	ended  bool
	all    sync.WaitGroup // of goroutines
}

// valveTo returns a valve that is open.
func valveTo(t *testing.T, to string, delay time.Duration) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{address: l.Addr().String(), to: to, delay: delay, conns: map[net.Conn]bool{}}
	v.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			v.all.Go(func() { v.join(in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		v.cut(func() { v.ended = true })
		v.speak()
		v.all.Wait()
	})
	return v
}

// join passes on what comes over a connection, and the answers to it.
func (v *valve) join(in net.Conn) {
	if !v.add(in) {
		return
	}
	defer v.remove(in)
	v.mu.Lock()
	to := v.to
	v.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil || !v.add(out) {
		return
	}
	defer v.remove(out)
	v.all.Go(func() {
		v.pass(out, in, false)
		v.remove(out)
	})
	v.pass(in, out, true)
}

func (v *valve) add(c net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut || v.ended {
		reset(c)
		return false
	}
	v.conns[c] = true
	return true
}

func (v *valve) remove(c net.Conn) {
	c.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, c)
}

// pass copies bytes, as the valve allows.
func (v *valve) pass(to, from net.Conn, answers bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		v.mu.Lock()
		delay, silent := v.delay, v.silent
		v.mu.Unlock()
		if answers && delay > 0 {
			<-time.After(delay)
		}
		if silent != nil {
			<-silent
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// cut breaks all connections.
func (v *valve) cut(also func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	also()
	for c := range v.conns {
		reset(c)
	}
}

// close resets all connections, and new ones, until open.
func (v *valve) close() { v.cut(func() { v.shut = true }) }

func (v *valve) open() { v.cut(func() { v.shut = false }) }

// hush lets nothing pass, and tells nobody, until speak.
func (v *valve) hush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.silent == nil {
		v.silent = make(chan struct{})
	}
}

func (v *valve) speak() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.silent != nil {
		close(v.silent)
		v.silent = nil
	}
}

// valved are instances with a valve before the store of each, and before the port where the
// others reach it.
type valved struct {
	t             *testing.T
	at            []string
	stores, peers []*valve
}

func behindValves(t *testing.T, n int) *valved {
	t.Helper()
	store := redistest.Start(t)
	f := &valved{t: t}
	for range n {
		mine, peer := valveTo(t, store.Address, 0), valveTo(t, "", 0)
		c := instanceOf(t, &redistest.Server{Address: mine.address})
		c.Cluster.Advertise = peer.address
		at, _ := serveAs(t, c, slog.New(listens{slog.DiscardHandler, peer}))
		f.at, f.stores, f.peers = append(f.at, at), append(f.stores, mine), append(f.peers, peer)
	}
	for _, at := range f.at {
		until(t, "all see each other", func() bool { return readyz(t, at).Get("members.#").Int() == int64(n) })
	}
	return f
}

// listens is a log that has a valve learn where the instance listens that says so.
type listens struct {
	slog.Handler
	v *valve
}

func (listens) Enabled(context.Context, slog.Level) bool { return true }

func (l listens) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l listens) WithGroup(string) slog.Handler { return l }

func (l listens) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "listening for other instances" {
		r.Attrs(func(a slog.Attr) bool {
			l.v.mu.Lock()
			defer l.v.mu.Unlock()
			l.v.to = a.Value.String()
			return false
		})
	}
	return nil
}

// begin begins a session.
func (v *valved) begin(i int) string {
	v.t.Helper()
	res, text := asks(v.t, v.at[i], "POST", handshake)
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != http.StatusOK || id == "" {
		v.t.Fatalf("initialize at %d = %v %s", i, res.Status, text)
	}
	return id
}

// call makes a call, and returns "" if it was answered as it should, and otherwise the answer.
func (v *valved) call(i int, id string) string {
	v.t.Helper()
	res, text := asks(v.t, v.at[i], "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"m"}}}`, "Mcp-Session-Id", id)
	if res.StatusCode == http.StatusOK && gjson.Get(text, "result").Raw != "" {
		return ""
	}
	return fmt.Sprintln(res.StatusCode, "Retry-After:", res.Header.Get("Retry-After"), text)
}

// goesOn makes a call that has to succeed. On a starved machine the owner may answer an
// instance too late: then nothing was done, and the client is told to try again.
func (v *valved) goesOn(what string, i int, id string) {
	v.t.Helper()
	for {
		fault := v.call(i, id)
		switch {
		case fault == "":
			return
		case !hasAll(fault, "503 Retry-After", "is unreachable; try again later"):
			v.t.Fatalf("%s: a call at %d: %s", what, i, fault)
		}
		v.t.Logf("%s: a call at %d is made again: %s", what, i, fault)
		time.Sleep(100 * time.Millisecond)
	}
}

// state returns the status of /readyz, and what it says.
func (v *valved) state(i int) (int, gjson.Result) {
	v.t.Helper()
	res, err := http.Get("http://" + v.at[i] + "/readyz")
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.StatusCode, gjson.GetBytes(text, "cluster")
}

// is waits until an instance is in a state.
func (v *valved) is(i int, want string) {
	v.t.Helper()
	until(v.t, fmt.Sprint("instance ", i, " is ", want), func() bool {
		_, s := v.state(i)
		return s.Get("state").Str == want
	})
}

// freeze silences the store for all. An instance that does not hear from the others in time, on a
// busy machine, is isolated: then it is tried again.
func (v *valved) freeze() {
	v.t.Helper()
	for range 5 {
		for _, valve := range v.stores {
			valve.hush()
		}
		all := map[string]int{}
		for i := range v.at {
			until(v.t, "an instance misses the store", func() bool {
				_, s := v.state(i)
				if s.Get("state").Str == "sure" {
					return false
				}
				all[s.Get("state").Str]++
				return true
			})
		}
		if all["frozen"] == len(v.at) {
			return
		}
		for _, one := range v.stores {
			one.speak()
		}
		for i := range v.at {
			v.is(i, "sure")
		}
	}
	v.t.Fatal("they do not go on without a store")
}

func hasAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// An owner that the others cannot connect to keeps its sessions while it reaches the store: none is taken over.
// The others answer 503 with Retry-After (S-027), and serve their own sessions. When they reach it again, its
// sessions are served.
func TestClusterCut(t *testing.T) {
	t.Parallel()
	f := behindValves(t, 3)
	id, other := f.begin(0), f.begin(1)
	for i := range f.at {
		f.goesOn("begun", i, id)
		f.goesOn("begun", i, other)
	}
	f.peers[0].close()
	if fault := f.call(1, id); !hasAll(fault, "503 Retry-After: 2", `"bridge":"unavailable"`) {
		t.Errorf("a call for a session that is out of reach: %s", fault)
	}
	f.goesOn("at the owner itself", 0, id)
	for i := range f.at { // that others cannot reach it does not keep it from reaching them
		f.goesOn("of another owner", i, other)
	}
	until(t, "it is said to be out of reach", func() bool {
		status, s := f.state(1)
		return status == http.StatusOK && len(s.Get("members.#(unreached==true)#").Array()) == 1
	})
	f.peers[0].open()
	for i := range f.at {
		until(t, "it goes on", func() bool { return f.call(i, id) == "" })
		if _, s := f.state(i); s.Get("taken_over").Int() != 0 || s.Get("state").Str != "sure" {
			t.Errorf("instance %d says %s", i, s.Raw)
		}
	}
}

// A store that does not answer. If one instance cannot reach it, that one refuses clients (S-072), and another
// one takes its session over (S-010). If none can, all go on, with new sessions too (S-060), and no session
// ends when the store answers again (S-061).
func TestClusterSilent(t *testing.T) {
	t.Parallel()
	f := behindValves(t, 3)
	id := f.begin(0)
	for i := range f.at {
		f.goesOn("begun", i, id)
	}
	f.stores[0].hush()
	f.is(0, "isolated")
	if status, s := f.state(0); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz of an instance alone without the store = %d %s", status, s.Raw)
	}
	if fault := f.call(0, id); !hasAll(fault, "503 Retry-After: 2") {
		t.Errorf("a call at an instance alone without the store: %s", fault)
	}
	until(t, "the session is taken over", func() bool { return f.call(1, id) == "" })
	f.stores[0].speak()
	f.is(0, "sure")
	for i := range f.at {
		f.goesOn("taken over", i, id)
	}
	if _, s := f.state(1); s.Get("taken_over").Int() != 1 {
		t.Errorf("the one that has taken the session over says %s", s.Raw)
	}
	f.freeze()
	fresh := f.begin(2)
	for begun := time.Now(); time.Since(begun) < 10*time.Second; <-time.After(300 * time.Millisecond) { // longer than a lease
		for i := range f.at {
			f.goesOn("without a store", i, id)
			f.goesOn("without a store", i, fresh)
		}
	}
	for _, v := range f.stores {
		v.speak()
	}
	for i := range f.at {
		f.is(i, "sure")
		f.goesOn("the store is back", i, id)
		f.goesOn("the store is back", i, fresh)
	}
	taken := int64(0)
	for i := range f.at {
		_, s := f.state(i)
		taken += s.Get("taken_over").Int()
	}
	if taken != 1 {
		t.Errorf("%d sessions were taken over, want only the one of the instance that was alone", taken)
	}
}
