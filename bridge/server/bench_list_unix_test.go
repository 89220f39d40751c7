//go:build unix

package server_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// listLimit is what a kept list may cost, beside what net/http takes to carry as
// many bytes.
const listLimit = 30 * time.Microsecond

// BenchmarkList measures lists of twenty tools that are kept, over Streamable
// HTTP, and beside them pings, and a bare handler of net/http that answers the
// same bytes as the list. They take turns within one run. The processor time is
// that of this process, with a client that does next to nothing.
func BenchmarkList(b *testing.B) {
	const turn = 100
	list := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`)
	bridged := dialStreamable(b)
	answer, err := bridged.call(list)
	if err != nil || !bytes.Contains(answer, []byte(`"tool_19"`)) || !bytes.Contains(answer, []byte(`"id":7`)) {
		b.Fatalf("call = %.200q, %v", answer, err)
	}
	ways := []struct {
		name    string
		to      caller
		request []byte
		took    time.Duration
	}{
		{"net/http", dialBare(b, bytes.Clone(answer)), list, 0},
		{"ping", bridged, []byte(`{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}`), 0},
		{"list", bridged, list, 0},
	}
	calls := 0
	for b.Loop() {
		for i := range ways {
			w := &ways[i]
			began := cpu(b)
			for range turn {
				if answer, err := w.to.call(w.request); err != nil || !bytes.Contains(answer[:40], []byte(`"id":7`)) {
					b.Fatalf("%s = %.200q, %v", w.name, answer, err)
				}
			}
			w.took += cpu(b) - began
		}
		calls += turn
	}
	for _, w := range ways {
		b.ReportMetric(float64(w.took.Microseconds())/float64(calls), "cpu-us/"+w.name)
	}
	own := (ways[2].took - ways[0].took) / time.Duration(calls)
	b.ReportMetric(float64(own.Nanoseconds())/1000, "cpu-us/own")
	b.ReportMetric(float64(own)/float64(listLimit), "of-limit")
}

// dialBare is a client of a server that answers everything alike.
func dialBare(b *testing.B, answer []byte) caller {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	b.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return &streamable{wire: dial(b, l.Addr().String())}
}

// cpu returns the processor time that this process has taken.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
