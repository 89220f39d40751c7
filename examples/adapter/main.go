// Command adapter bridges an MCP server that listens on a socket. The bridge has no transport for sockets; package
// socket is one.
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"example.com/adapter/socket"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: adapter tcp://HOST:PORT, or unix:///PATH")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBridge(os.Args[1], slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	l, err := b.Listen(ctx)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s/mcp", l.Addr())
	if err := b.Serve(ctx, l); err != nil {
		log.Fatal(err)
	}
}

// newBridge returns a bridge to the server at an address.
func newBridge(address string, log *slog.Logger) (*server.Server, error) {
	c := config.Default()
	s := config.DefaultServer("tools", config.ShareSession)
	a, err := socket.New(s.Name, socket.Config{Address: address}, conn.Options{
		Log: log, MaxMessage: int(c.MaxMessage), Timeouts: conn.Timeouts{Idle: s.Timeout, Max: s.MaxTimeout},
	})
	if err != nil {
		return nil, err
	}
	s.Adapter = a
	c.Servers = []config.Server{s}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return server.New(&c, log), nil
}
