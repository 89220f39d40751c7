// Command gin serves a page of its own and an MCP server on one port, by gin.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:8808")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s/tools/mcp", l.Addr())
	if err := serve(ctx, l); err != nil {
		log.Fatal(err)
	}
}

// serve serves on l until ctx ends.
func serve(ctx context.Context, l net.Listener) error {
	greeter := config.DefaultServer("greeter", config.ShareSession)
	greeter.Adapter = inprocess.Shared(greeter.Name, newGreeter(), inprocess.Options{})
	c := config.Default()
	c.Servers = []config.Server{greeter}
	if err := c.Validate(); err != nil {
		return err
	}
	bridge := server.New(&c, slog.Default())

	gin.SetMode(gin.ReleaseMode) // in its debug mode, gin prints every route
	engine := gin.New()
	engine.GET("/about", func(c *gin.Context) { c.String(http.StatusOK, "my own page") })
	bridge.Mount(engine.Group("/tools"))

	site := &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- site.Serve(l) }()
	select {
	case err := <-served:
		bridge.Close(context.Background())
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	bridge.Close(limit) // first: it ends the streams, for which Shutdown would wait
	err := site.Shutdown(limit)
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// newGreeter makes a server of the official SDK with one tool.
func newGreeter() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	type who struct {
		Name string `json:"name" jsonschema:"who is greeted"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greets somebody"},
		func(_ context.Context, _ *mcp.CallToolRequest, in who) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
		})
	return s
}
