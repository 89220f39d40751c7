package inspect

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

type Link struct {
	Transport mcp.Transport
	Reason    func() string // why the server does not work, for the user's own servers; may be empty
	// Apply makes another configuration current. The session goes on.
	Apply func(c *config.Config) error
	// Close ends the link and waits for its goroutines. Unless hurry is set, messages that the client has sent still
	// arrive.
	Close func(hurry bool)
}

// DialBridge opens a link to the named server. The empty name means the aggregate. The link goes through a bridge in
// this process, with the limits, headers and filters of a served server.
func DialBridge(c *config.Config, name string, log *slog.Logger) (*Link, error) {
	c.Cluster = config.Cluster{} // a bridge for one client is not an instance of a cluster (S-003)
	s := server.New(c, log)
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.ServeStdio(ctx, name, fromClient, toClient)
		toClient.CloseWithError(err)
		fromClient.CloseWithError(err)
	})
	return &Link{
		Transport: &mcp.IOTransport{
			Reader:        fromBridge,
			Writer:        toBridge,
			MaxLineLength: -1,
		}, // the bridge has a limit
		Reason: func() string {
			var all []string
			for _, st := range s.Status() {
				if (st.Name == name || name == "") && st.Err != nil {
					all = append(all, st.Err.Error())
				}
			}
			return strings.Join(all, "\n")
		},
		Apply: func(c *config.Config) error {
			_, err := s.Apply(c)
			return err
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
