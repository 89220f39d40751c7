package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

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

// greeter is a configuration with that server. Files, remote servers and
// programs stand beside it in Servers, as in a configuration file.
func greeter() *config.Config {
	s := config.DefaultServer("greeter", config.ShareSession)
	s.Adapter = inprocess.Shared(s.Name, newGreeter(), inprocess.Options{})
	c := config.Default()
	c.Servers = []config.Server{s}
	if err := c.Validate(); err != nil {
		log.Fatal(err)
	}
	return &c
}

// greet calls the tool as any client does and prints what it says.
func greet(t mcp.Transport, name string) {
	ctx := context.Background()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"}, nil).Connect(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: map[string]string{"name": name}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*mcp.TextContent).Text)
}

// The bridge has its place among the routes of a program, below a path. Tools registered once are there over
// Streamable HTTP and over the older HTTP+SSE.
func ExampleNew() {
	s := server.New(greeter(), slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	mux.HandleFunc("/about", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "my own page") })
	mux.Handle("/tools/", http.StripPrefix("/tools", s.Handler()))
	site := httptest.NewServer(mux)

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/tools/mcp"}, "Ada")
	greet(&mcp.SSEClientTransport{Endpoint: site.URL + "/tools/sse"}, "Grace")
	r, err := http.Get(site.URL + "/about")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(page))

	s.Close(context.Background())
	site.Close()
	// Output:
	// Hello, Ada!
	// Hello, Grace!
	// my own page
}

// It has its place among the routes of a gin engine, too.
func ExampleServer_Mount() {
	s := server.New(greeter(), slog.New(slog.DiscardHandler))
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/about", func(c *gin.Context) { c.String(http.StatusOK, "my own page") })
	s.Mount(engine.Group("/tools"))
	site := httptest.NewServer(engine)

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/tools/mcp"}, "Ada")
	greet(&mcp.SSEClientTransport{Endpoint: site.URL + "/tools/sse"}, "Grace")

	s.Close(context.Background())
	site.Close()
	// Output:
	// Hello, Ada!
	// Hello, Grace!
}

// A program that knows who calls says so: what callers have is kept apart, and the
// server is told.
func ExampleWithPrincipal() {
	one := config.DefaultServer("greeter", config.SharePrincipal)
	one.Adapter = inprocess.New(one.Name, func(from *bridge.Caller) *mcp.Server {
		fmt.Println("a connection for", from.Principal)
		return newGreeter()
	}, inprocess.Options{})
	c := config.Default()
	c.Servers = []config.Server{one}
	if err := c.Validate(); err != nil {
		log.Fatal(err)
	}
	s := server.New(&c, slog.New(slog.DiscardHandler))
	bridge := s.Handler()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := "ada" // as the program's own login says
		bridge.ServeHTTP(w, r.WithContext(server.WithPrincipal(r.Context(), user)))
	}))

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp"}, "Ada")

	s.Close(context.Background())
	site.Close()
	// Output:
	// a connection for ada
	// Hello, Ada!
}

// Servers come and go while the bridge runs. Clients are told.
func ExampleServer_Add() {
	s := server.New(greeter(), slog.New(slog.DiscardHandler))
	site := httptest.NewServer(s.Handler())

	more := config.DefaultServer("more", config.ShareSession)
	more.Adapter = inprocess.Shared(more.Name, newGreeter(), inprocess.Options{})
	if err := s.Add(more); err != nil {
		log.Fatal(err)
	}
	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/more/mcp"}, "Ada")
	if err := s.Remove("more"); err != nil {
		log.Fatal(err)
	}
	r, err := http.Post(site.URL+"/more/mcp", "application/json", nil)
	if err != nil {
		log.Fatal(err)
	}
	r.Body.Close()
	fmt.Println(r.Status)

	s.Close(context.Background())
	site.Close()
	// Output:
	// Hello, Ada!
	// 404 Not Found
}

// The same over standard input and output, as desktop clients start servers: a
// program passes os.Stdin and os.Stdout.
func ExampleServer_ServeStdio() {
	s := server.New(greeter(), slog.New(slog.DiscardHandler))
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	served := make(chan error)
	go func() {
		served <- s.ServeStdio(context.Background(), "greeter", stdin, stdout)
	}()

	greet(&mcp.IOTransport{Reader: fromServer, Writer: toServer}, "Ada") // closes the pipes when it is done

	fmt.Println("served:", <-served)
	s.Close(context.Background())
	// Output:
	// Hello, Ada!
	// served: <nil>
}
