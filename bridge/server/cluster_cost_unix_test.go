//go:build unix

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// way is one way to make a call, and the least that a call over it has cost in a round.
type way struct {
	name      string
	call      func() error
	cpu, took time.Duration
}

// turns makes rounds of calls over each way by turns, so that whatever else the machine does
// hits all of them.
func turns(b *testing.B, batch int, ways []*way) {
	b.Helper()
	for _, w := range ways {
		for range batch/10 + 1 { // what is opened by the first ones
			if err := w.call(); err != nil {
				b.Fatal(w.name, ": ", err)
			}
		}
	}
	for b.Loop() {
		for _, w := range ways {
			worked, begun := worked(b), time.Now()
			for range batch {
				if err := w.call(); err != nil {
					b.Fatal(w.name, ": ", err)
				}
			}
			w.least(since(b, worked)/time.Duration(batch), time.Since(begun)/time.Duration(batch))
		}
	}
	b.ReportMetric(0, "ns/op") // which counts all ways
}

func (w *way) least(cpu, took time.Duration) {
	if w.cpu == 0 || cpu < w.cpu {
		w.cpu = cpu
	}
	if w.took == 0 || took < w.took {
		w.took = took
	}
}

// worked returns the time that this process has worked: the instances and the client.
func worked(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func since(b *testing.B, before time.Duration) time.Duration { return worked(b) - before }

func micros(d time.Duration) float64 { return float64(d) / 1000 }

// BenchmarkHop measures what it costs that a call comes by way of another instance, beside
// a hop between two bare servers of net/http with mutual TLS, and beside one by a reverse proxy
// of the standard library: processor time of all, and time. Each is the least of the rounds of
// the same run. The child process that answers is the same behind all of them: while one waits
// for it, threads fall asleep, and to wake them costs as much as the rest of a hop. at-once is
// a bare hop to a handler that waits for nobody, and x-cpu-at-once the comparison with that.
func BenchmarkHop(b *testing.B) {
	for _, size := range []struct {
		name         string
		bytes, batch int
	}{{"100B", 100, 500}, {"64KB", 64 << 10, 100}, {"1MB", 1 << 20, 20}} {
		b.Run(size.name, func(b *testing.B) {
			request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"` + strings.Repeat("x", size.bytes) + `"}}}`)
			over := func(name string, c caller) *way {
				return &way{name: name, call: func() error {
					answer, err := c.call(request)
					if err == nil && len(answer) < size.bytes {
						err = fmt.Errorf("%.200q, of %d bytes", answer, len(answer))
					}
					return err
				}}
			}
			owner, other := dialSeveral(b)
			child := dialDirect(b).call
			direct, hop := over("owner", owner), over("hop", other)
			bare, hopped, proxy := over("bare", dialPlain(b, nothing, child)), over("bareHop", dialPlain(b, bareHop, child)), over("proxy", dialPlain(b, reverseProxy, child))
			quick, quickHop := over("at once", dialPlain(b, nothing, atOnce)), over("hop at once", dialPlain(b, bareHop, atOnce))
			turns(b, size.batch, []*way{direct, hop, bare, hopped, proxy, quick, quickHop})
			rise := func(to, from *way) time.Duration { return to.cpu - from.cpu }
			ours := rise(hop, direct)
			for _, against := range []struct {
				name     string
				to, from *way
			}{{"", hopped, bare}, {"-proxy", proxy, bare}, {"-at-once", quickHop, quick}} {
				b.ReportMetric(micros(rise(against.to, against.from)), "cpu-us/bare-hop"+against.name)
				b.ReportMetric(float64(ours)/float64(rise(against.to, against.from)), "x-cpu"+against.name)
			}
			b.ReportMetric(micros(ours), "cpu-us/hop")
			b.ReportMetric(micros(hop.took-direct.took), "us/hop")
			b.ReportMetric(micros(hopped.took-bare.took), "us/bare-hop")
		})
	}
}

// BenchmarkInstances measures the processor time of a call before 1, 2 and 3 instances, each with a
// session of its own, when calls of each go to one instance after the other. With n instances, n-1 of n
// calls take a hop. x-linear is what a call costs, divided by what it should: what it costs
// with one instance, and so many hops. All of it is measured in the same run. Calls need no
// commands of Redis: those that are counted are what instances tell it every second.
func BenchmarkInstances(b *testing.B) {
	request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"m"}}}`)
	quiet := slog.New(slog.DiscardHandler)
	var ways []*way
	var hop *way
	var store *redistest.Server
	calls := 0
	for n := 1; n <= 3; n++ {
		store = redistest.Start(b)
		var at []string
		for range n {
			address, _ := serveAs(b, measured(b, store), quiet)
			at = append(at, address)
		}
		var all []caller // each session at each instance
		for i := range n {
			until(b, "all see each other", func() bool { return readyz(b, at[i]).Get("members.#").Int() == int64(n) })
			s := dialAt(b, at[i]).(*streamable)
			for j := range n {
				if j == i {
					all = append(all, s)
				} else {
					all = append(all, &streamable{wire: dial(b, at[j]), headers: s.headers})
				}
			}
		}
		next := 0
		ways = append(ways, &way{name: fmt.Sprint(n), call: func() error {
			next++
			calls++
			_, err := all[next%len(all)].call(request)
			return err
		}})
		if n == 2 {
			hop = &way{name: "hop", call: func() error { _, err := all[1].call(request); return err }}
		}
	}
	before := commands(b, store)
	calls = 0
	turns(b, 300, append(slices.Clone(ways), hop))
	b.ReportMetric(float64(commands(b, store)-before)/float64(calls/len(ways)), "commands/call")
	for i, w := range ways {
		n := time.Duration(i + 1)
		linear := ways[0].cpu + (hop.cpu-ways[0].cpu)*(n-1)/n
		b.ReportMetric(micros(w.cpu), "cpu-us/call-"+w.name)
		b.ReportMetric(float64(w.cpu)/float64(linear), "x-linear-"+w.name)
	}
}

// commands returns how many commands a store has had.
func commands(b *testing.B, store *redistest.Server) (n int) {
	b.Helper()
	c := store.Client()
	defer c.Close()
	text, err := c.Info(context.Background(), "stats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
			return n
		}
	}
	b.Fatalf("Redis does not say how many commands it has had: %s", text)
	return 0
}
