package main

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// link is the way to a server.
type link struct {
	transport mcp.Transport
	reason    func() string // why the server does not work, for its own user; empty when nothing is known
	// close ends all that belongs to the link, and waits for it. What the client
	// has said before is still heard, unless there is a hurry.
	close func(hurry bool)
}

// dialer makes the link to the server of that name.
type dialer func(c *config.Config, name string, log *slog.Logger) (*link, error)

// dialBridge puts a bridge in between, so that a server is used exactly as when
// it is served: through the same limits, headers and filters.
func dialBridge(c *config.Config, name string, log *slog.Logger) (*link, error) {
	s := server.New(c, log)
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := stdio.Serve(ctx, s.Bridge(), name, fromClient, toClient, stdio.DownstreamOptions{Log: log, MaxMessage: int(c.MaxMessage)})
		toClient.CloseWithError(err)
		fromClient.CloseWithError(err)
	})
	return &link{
		transport: &mcp.IOTransport{Reader: fromBridge, Writer: toBridge, MaxLineLength: -1}, // the bridge has a limit
		reason: func() string {
			for _, st := range s.Bridge().Status() {
				if st.Name == name {
					return st.Reason
				}
			}
			return ""
		},
		close: func(hurry bool) {
			toBridge.Close()
			fromBridge.Close()
			if hurry {
				stop()
			}
			wg.Wait()
			stop()
			s.Close(context.Background())
		},
	}, nil
}
