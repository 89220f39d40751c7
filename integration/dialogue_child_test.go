package integration

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/dialogue"
)

// relayVariable makes the test binary a relay, the child process of a dialogue: what comes from stdin goes to the address
// that the variable names, and what comes from there goes to stdout.
const relayVariable = "BRIDGE_TEST_RELAY"

// relay runs until one side ends.
func relay(address string) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	over := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		over <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(os.Stdout, c)
		over <- struct{}{}
	}()
	<-over
}

// child reaches a server of a dialogue at the other end of a relay.
func (b *dialogueBridge) child(t *testing.T, s *dialogue.Server) bridge.Adapter {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveRelay(c, s) })
		}
	})
	b.after = append(b.after, func() {
		_ = l.Close()
		wg.Wait()
	})
	return stdio.New(s.Name, stdio.Config{
		Command: self,
		Env: map[string]string{
			relayVariable: l.Addr().String(),
			"GORACE":      "atexit_sleep_ms=0", // the race detector's children would take a second to end
		},
	}, conn.Options{Log: slog.New(slog.DiscardHandler)})
}

// serveRelay serves one connection of a bridge to a server of a dialogue.
func serveRelay(c net.Conn, s *dialogue.Server) {
	defer c.Close()
	peer := s.Connect(
		func(line, _ string) { _, _ = io.WriteString(c, line+"\n") },
		func() { _ = c.Close() },
	)
	defer peer.Closed()
	for lines := bufio.NewReader(c); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		peer.Take(strings.TrimSuffix(line, "\n"))
	}
}
