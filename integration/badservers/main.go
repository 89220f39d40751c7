// Badservers runs four MCP servers over Streamable HTTP: one works, one takes 5 s for each call, one is up every other
// second, and one answers with garbage. It writes a line with the name and the address of each server, and a line with
// an address that has no server. It ends at the end of its input.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

func main() {
	debug.SetGCPercent(1000) // the cost of this process is not measured
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "badservers:", err)
		os.Exit(1)
	}
}

func run() error {
	for _, s := range []struct {
		name   string
		handle http.HandlerFunc
	}{{"good", answer}, {"slow", slowly}, {"garbage", garbage}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer serve(l, s.handle)()
		fmt.Println(s.name, l.Addr())
	}
	var free []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		free = append(free, l.Addr().String())
		if err := l.Close(); err != nil {
			return err
		}
	}
	fmt.Println("dead", free[0])
	fmt.Println("flapping", free[1])
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		flap(free[1], quit)
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	close(quit)
	<-ended
	return err
}

func serve(l net.Listener, h http.HandlerFunc) (stop func()) {
	s := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	return func() {
		_ = s.Close()
		<-ended
	}
}

// flap serves every other second.
func flap(at string, quit <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stop := func() {}
	for up := false; ; up = !up {
		if up {
			stop()
			stop = func() {}
		} else if l, err := net.Listen("tcp", at); err == nil {
			stop = serve(l, answer)
		}
		select {
		case <-tick.C:
		case <-quit:
			stop()
			return
		}
	}
}

// answer is a minimal working server without sessions.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result := `{"content":[{"type":"text","text":"here"}]}`
	switch {
	case bytes.Contains(body, []byte(`"initialize"`)):
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"answering","version":"1"}}`
	case bytes.Contains(body, []byte(`"tools/list"`)):
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	case !bytes.Contains(body, []byte(`"id"`)):
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id := []byte("0")
	if _, after, ok := bytes.Cut(body, []byte(`"id":`)); ok {
		id = after[:bytes.IndexAny(after, ",}")]
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// slowly takes 5 s for each call.
func slowly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		timer := time.NewTimer(5 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	answer(w, r)
}

// garbage answers every request with garbage.
func garbage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{"content":[`+strings.Repeat("\x00}{", 1000))
}
