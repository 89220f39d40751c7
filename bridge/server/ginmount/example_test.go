package ginmount_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/bridge/server/ginmount"
	"github.com/mcp-bridge/bridge/config"
)

// The bridge has its place among the routes of a gin engine.
func ExampleMount() {
	one := config.DefaultServer("greeter", config.ShareSession)
	greeter := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	greeter.AddPrompt(&mcp.Prompt{Name: "hello"}, nil)
	one.Adapter = inprocess.Shared(one.Name, greeter, inprocess.Options{})
	c := config.Default()
	c.Servers = []config.Server{one}
	if err := c.Validate(); err != nil {
		log.Fatal(err)
	}
	s := server.New(&c, slog.New(slog.DiscardHandler))

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/about", func(c *gin.Context) { c.String(http.StatusOK, "my own page") })
	ginmount.Mount(s, engine.Group("/tools"))
	site := httptest.NewServer(engine)

	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"}, nil)
	for _, way := range []mcp.Transport{&mcp.StreamableClientTransport{Endpoint: site.URL + "/tools/mcp"}, &mcp.SSEClientTransport{Endpoint: site.URL + "/tools/sse"}} {
		session, err := client.Connect(ctx, way, nil)
		if err != nil {
			log.Fatal(err)
		}
		prompts, err := session.ListPrompts(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(prompts.Prompts[0].Name)
		session.Close()
	}

	s.Close(ctx)
	site.Close()
	// Output:
	// hello
	// hello
}
