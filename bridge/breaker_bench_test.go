package bridge

import (
	"testing"
	"time"
)

// BenchmarkBreaker measures what the breaker and the retries add to a call, with
// and without somebody to whom the server can speak meanwhile.
func BenchmarkBreaker(b *testing.B) {
	for _, test := range []struct {
		name string
		o    ServerOptions
		back Client
	}{
		{"off", ServerOptions{Breaker: Breaker{Off: true}, Retry: Retry{Off: true}}, nobody{}},
		{"on/nobody", ServerOptions{}, nil},
		{"on", ServerOptions{}, nobody{}},
		{"slow", ServerOptions{Breaker: Breaker{Slow: time.Minute}, Retry: Retry{Tools: true}}, nobody{}},
	} {
		b.Run(test.name, func(b *testing.B) {
			test.o.Name = "s"
			br := New(Options{Servers: []ServerOptions{test.o}})
			defer br.Close(b.Context())
			rt := br.routes[0]
			e := &echoing{passing: passing{s: &Server{Revision: latest}}}
			e.answer = *parse(b, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			w := &wire{raw: e, l: newLane(rt, &Caller{}, nobody{})}
			w.up = rt.breaker.joined(w)
			up := rt.retrying(w.up)
			r := &Request{Message: parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`), From: &Caller{}, Back: test.back}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := up.Call(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
