// Command gin is a gin program with the bridge inside: a tool at /tools/mcp, beside a page of the program's own.
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

type who struct {
	Name string `json:"name" jsonschema:"who is greeted"`
}

func greet(_ context.Context, _ *mcp.CallToolRequest, in who) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
}

// newBridge returns a bridge to one server, which is part of this program.
func newBridge(log *slog.Logger) (*server.Server, error) {
	greeter := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	mcp.AddTool(greeter, &mcp.Tool{Name: "greet", Description: "Greets somebody"}, greet)
	s := config.DefaultServer("greeter", config.ShareSession)
	s.Adapter = inprocess.Shared(s.Name, greeter, inprocess.Options{Log: log})
	c := config.Default()
	c.Servers = []config.Server{s}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return server.New(&c, log), nil
}

// newEngine returns the routes of the program: its own, and those of the bridge below /tools.
func newEngine(b *server.Server) *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // in its debug mode, gin prints every route
	engine := gin.New()
	engine.GET("/about", func(c *gin.Context) { c.String(http.StatusOK, "my own page") })
	b.Mount(engine.Group("/tools"))
	return engine
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b, err := newBridge(slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	site := &http.Server{Addr: "127.0.0.1:8080", Handler: newEngine(b)}
	failed := make(chan error, 1)
	go func() { failed <- site.ListenAndServe() }()
	select {
	case err := <-failed:
		log.Fatal(err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b.Close(grace) // ends the sessions and their streams, for which Shutdown would wait
	site.Shutdown(grace)
}
