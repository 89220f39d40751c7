//go:build unix

package server_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"
)

// BenchmarkList measures lists of twenty tools that are kept, one after the other
// over Streamable HTTP, and beside them what nothing at all costs that way. The
// processor time is that of this process: the bridge, and a client that does
// next to nothing.
func BenchmarkList(b *testing.B) {
	for _, way := range []struct{ method, want string }{{"ping", `"result":{}`}, {"tools/list", `"tool_19"`}} {
		b.Run(way.method, func(b *testing.B) {
			c := dialStreamable(b)
			request := []byte(`{"jsonrpc":"2.0","id":7,"method":"` + way.method + `","params":{}}`)
			answer, err := c.call(request)
			if err != nil || !bytes.Contains(answer, []byte(way.want)) || !bytes.Contains(answer, []byte(`"id":7`)) {
				b.Fatalf("call = %.200q, %v", answer, err)
			}
			want := len(answer)
			b.ReportAllocs()
			began := cpu(b)
			for b.Loop() {
				if answer, err := c.call(request); err != nil || len(answer) != want {
					b.Fatalf("call = %.200q of %d bytes, want %d; %v", answer, len(answer), want, err)
				}
			}
			b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		})
	}
}

// cpu returns the processor time that this process has taken.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
