package inspect

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

// Link is the way to a server.
type Link struct {
	Transport mcp.Transport
	Reason    func() string // why the server does not work, for its own user; empty when nothing is known
	// Close ends all that belongs to the link, and waits for it. What the client
	// has said before is still heard, unless there is a hurry.
	Close func(hurry bool)
}

// DialBridge makes the link to the server of that name. It puts a bridge in
// between, so that the server is used exactly as when it is served: through the
// same limits, headers and filters.
func DialBridge(c *config.Config, name string, log *slog.Logger) (*Link, error) {
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
	return &Link{
		Transport: &mcp.IOTransport{Reader: fromBridge, Writer: toBridge, MaxLineLength: -1}, // the bridge has a limit
		Reason: func() string {
			for _, st := range s.Bridge().Status() {
				if st.Name == name {
					return st.Reason
				}
			}
			return ""
		},
		Close: func(hurry bool) {
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
