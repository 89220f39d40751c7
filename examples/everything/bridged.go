package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// serveBridged serves with the bridge in the same process: one SDK server over all of the bridge's transports. Each
// session has its own instance.
func serveBridged(ctx context.Context, s settings, stdin io.Reader, stdout, stderr io.Writer) error {
	set := newInstances(s)
	defer set.close()
	one := config.DefaultServer("everything", config.ShareSession)
	one.Adapter = inprocess.New(one.Name, func(*bridge.Caller) *mcp.Server { return set.add().server }, inprocess.Options{Log: s.log})
	c := config.Default()
	c.Listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	c.Servers = []config.Server{one}
	if err := c.Validate(); err != nil {
		return err
	}
	b := server.New(&c, s.log)
	if s.kind == kindBridgedStdio {
		defer b.Close(context.WithoutCancel(ctx))
		err := b.ServeStdio(ctx, one.Name, stdin, stdout)
		if ctx.Err() != nil {
			return nil // a signal is not a failure
		}
		return err
	}
	l, err := b.Listen(ctx)
	if err != nil {
		b.Close(ctx)
		return err
	}
	fmt.Fprintf(stderr, "everything: listening on http://%[1]s/mcp and http://%[1]s/sse\n", l.Addr())
	return b.Serve(ctx, l)
}
