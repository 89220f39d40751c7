// Command many-tools offers the tools of forty servers, all in this process, by search: a client lists three tools, and
// finds and calls the others with them. At /mcp?tools=code, a client calls them in scripts.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/script"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

func main() {
	script.Main()
	listen := flag.String("listen", "127.0.0.1:8808", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBridge(*listen, script.Program(), slog.Default())
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

// newBridge returns a bridge to all departments. The joint address offers their tools by search. scripts is the program
// that runs scripts.
func newBridge(listen, scripts string, log *slog.Logger) (*server.Server, error) {
	c := config.Default()
	c.Listen = listen
	c.ToolsMode = config.ToolsSearch
	c.Always = []string{"help__*"}
	c.Scripts = scripts
	for _, d := range departments {
		s := config.DefaultServer(d.name, config.ShareAll)
		s.Adapter = inprocess.New(s.Name, func(*bridge.Caller) *mcp.Server { return d.server() }, inprocess.Options{Log: log})
		c.Servers = append(c.Servers, s)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return server.New(&c, log), nil
}
