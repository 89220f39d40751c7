package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// pads is a server that answers each call with as much as it was sent.
func pads(stream bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body := make([]byte, r.ContentLength)
		_, _ = io.ReadFull(r.Body, body)
		id := []byte("0")
		if _, rest, ok := bytes.Cut(body, []byte(`"id":`)); ok {
			id, _, _ = bytes.Cut(rest, []byte(","))
		}
		switch {
		case bytes.Contains(body[:min(len(body), 200)], []byte(`"server/discover"`)):
			good(discovered)(w, r, string(id))
		case bytes.Contains(body[:min(len(body), 200)], []byte(`"initialize"`)):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":`+agreed+`}`, id, "2025-11-25")
		case bytes.Contains(body[:min(len(body), 200)], []byte(`"notifications/`)):
			w.WriteHeader(http.StatusAccepted)
		default:
			answer := body // of a form that the client does not look into
			if _, params, ok := bytes.Cut(body, []byte(`"params":`)); ok {
				answer = append(append(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"result":`...), params[:len(params)-1]...), '}')
			}
			if stream {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write([]byte("data: "))
				_, _ = w.Write(answer)
				_, _ = w.Write([]byte("\n\n"))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
		}
	}
}

// BenchmarkUpstreamCall is a call through a connection, beside the same by a
// bare client of net/http: as JSON, and as the one event of a stream, to a legacy
// server and to a modern one.
func BenchmarkUpstreamCall(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 1 << 20} {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"pad":%q}}}`, strings.Repeat("x", size))
		for _, stream := range []bool{false, true} {
			kind := map[bool]string{false: "json", true: "events"}[stream]
			b.Run(fmt.Sprintf("bare/%s/%d", kind, size), func(b *testing.B) {
				s := httptest.NewServer(pads(stream))
				defer s.Close()
				c := s.Client()
				c.Transport.(*http.Transport).DisableCompression = true
				b.ReportAllocs()
				for b.Loop() {
					r, _ := http.NewRequest("POST", s.URL, strings.NewReader(text))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Accept", acceptBoth)
					res, err := c.Do(r)
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, res.Body); err != nil || n < int64(size) {
						b.Fatal(n, err)
					}
					res.Body.Close()
				}
			})
			for era, name := range map[conn.Era]string{conn.EraLegacy: "call", conn.EraModern: "modern"} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, kind, size), func(b *testing.B) {
					s := httptest.NewServer(pads(stream))
					defer s.Close()
					up := adaptertest.Open(b, adapter(b, s.URL, nil, conn.Options{Era: era}), &adaptertest.Client{})
					defer up.Close(context.Background())
					m := adaptertest.Parse(b, text)
					b.ReportAllocs()
					for b.Loop() {
						a, err := up.Call(b.Context(), &bridge.Request{Message: m})
						if err != nil || len(a.Result) < size {
							b.Fatal(adaptertest.Text(a), err)
						}
						a.Release()
					}
				})
			}
		}
	}
}

// BenchmarkUpstreamIdle measures the memory of an open connection whose standalone
// stream is silent, net/http's part included. The server keeps next to nothing.
func BenchmarkUpstreamIdle(b *testing.B) {
	silent(b, conn.EraLegacy, func(u *Upstream) func() {
		up, err := u.Open(b.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		if err != nil {
			b.Fatal(err)
		}
		return func() { _ = up.Close(b.Context()) }
	})
}

// BenchmarkUpstreamListen measures the memory of a subscription to which a modern
// server says nothing.
func BenchmarkUpstreamListen(b *testing.B) {
	var up bridge.Upstream
	silent(b, conn.EraModern, func(u *Upstream) func() {
		if up == nil {
			up = adaptertest.OpenModern(b, u, &adaptertest.Client{})
		}
		ctx, cancel := context.WithCancel(b.Context())
		over := adaptertest.Go(ctx, b, up, nil, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
		return func() { cancel(); <-over }
	})
}

// silent measures what is held by b.N times what open opens, a stream each.
func silent(b *testing.B, era conn.Era, open func(*Upstream) (end func())) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	streams := make(chan net.Conn, b.N+1)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			sparely(c, streams)
		}
	}()
	u := adapter(b, "http://"+l.Addr().String(), nil, conn.Options{Era: era})
	before := held()
	ends := make([]func(), b.N)
	kept := make([]net.Conn, b.N)
	for i := range ends {
		ends[i] = open(u)
		kept[i] = <-streams
	}
	u.Close()
	b.ReportMetric(float64(held()-before)/float64(b.N), "held-B/conn")
	for i, end := range ends {
		kept[i].Close()
		end()
	}
	l.Close()
	<-served
}

// held returns how many bytes are in use after garbage collection.
func held() uint64 {
	for range 5 { // each halves the stacks that are larger than they need be
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// sparely serves an HTTP connection without keeping it: a stream is handed
// over, anything else answered and closed.
func sparely(c net.Conn, streams chan<- net.Conn) {
	var in [4 << 10]byte
	n := 0
	for !bytes.Contains(in[:n], []byte("\r\n\r\n")) {
		k, err := c.Read(in[n:])
		if err != nil {
			c.Close()
			return
		}
		n += k
	}
	head, body, _ := strings.Cut(string(in[:n]), "\r\n\r\n")
	if strings.HasPrefix(head, "GET") || strings.Contains(head, listen) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		streams <- c
		return
	}
	defer c.Close()
	var t told
	if json.Unmarshal([]byte(body), &t) != nil || t.ID == nil {
		fmt.Fprint(c, "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return
	}
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":`+agreed+`}`, t.ID, "2025-11-25")
	if t.Method == discover {
		answer = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":`+discovered+`}`, t.ID)
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
}
