package inprocess_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
)

type greeting struct {
	Name string `json:"name" jsonschema:"who is greeted"`
}

// newGreeter makes a server with one tool.
func newGreeter() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greets somebody"},
		func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
		})
	return s
}

// greet calls the tool as any client does and prints what it says.
func greet(t mcp.Transport, name string) {
	ctx := context.Background()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"}, nil).Connect(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: greeting{Name: name}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*mcp.TextContent).Text)
}

// local lets only requests pass that are meant for this machine and that no
// page of a foreign site has made: the specification demands it of servers that
// run locally (2025-11-25, basic/transports, security warning).
func local(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this server is for its own machine only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Tools written in Go, over Streamable HTTP and over the older HTTP+SSE.
func Example() {
	b := bridge.New(bridge.Options{Servers: []bridge.ServerOptions{
		{Name: "greeter", Adapter: inprocess.Shared("greeter", newGreeter(), inprocess.Options{})},
	}})
	newer := streamable.New(b, streamable.Options{})
	older := sse.New(b, sse.Options{})

	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) { newer.Serve("greeter", w, r) })
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) { older.Stream("greeter", "/messages", w, r) })
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) { older.Message("greeter", w, r) })
	site := httptest.NewServer(local(mux))

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp", HTTPClient: site.Client()}, "Ada")
	greet(&mcp.SSEClientTransport{Endpoint: site.URL + "/sse", HTTPClient: site.Client()}, "Grace")

	b.Close(context.Background()) // ends the sessions, and with them their streams
	older.Close()
	site.Close()
	// Output:
	// Hello, Ada!
	// Hello, Grace!
}

// A server among the routes of a gin engine of one's own.
func Example_gin() {
	b := bridge.New(bridge.Options{Servers: []bridge.ServerOptions{
		{Name: "greeter", Adapter: inprocess.Shared("greeter", newGreeter(), inprocess.Options{})},
	}})
	newer := streamable.New(b, streamable.Options{})

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "fine") })
	engine.Any("/tools/mcp", func(c *gin.Context) { newer.Serve("greeter", c.Writer, c.Request) })
	site := httptest.NewServer(local(engine))

	greet(&mcp.StreamableClientTransport{Endpoint: site.URL + "/tools/mcp", HTTPClient: site.Client()}, "Ada")
	r, err := site.Client().Get(site.URL + "/healthz")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	health, err := io.ReadAll(r.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(health))

	b.Close(context.Background())
	site.Close()
	// Output:
	// Hello, Ada!
	// fine
}

// The same over standard input and output, as desktop clients start servers. A
// program passes os.Stdin and os.Stdout.
func Example_stdio() {
	b := bridge.New(bridge.Options{Servers: []bridge.ServerOptions{
		{Name: "greeter", Adapter: inprocess.Shared("greeter", newGreeter(), inprocess.Options{})},
	}})
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	served := make(chan error)
	go func() {
		served <- stdio.Serve(context.Background(), b, "greeter", stdin, stdout, stdio.DownstreamOptions{})
	}()

	greet(&mcp.IOTransport{Reader: fromServer, Writer: toServer}, "Ada") // closes the pipes when it is done

	fmt.Println("served:", <-served)
	b.Close(context.Background())
	// Output:
	// Hello, Ada!
	// served: <nil>
}

// A server for each session: what its tools remember belongs to one client.
func ExampleNew() {
	counters := inprocess.New("counter", func(*bridge.Caller) *mcp.Server {
		var n atomic.Int64
		s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1.0.0"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n.Add(1))}}}, nil, nil
		})
		return s
	}, inprocess.Options{})
	b := bridge.New(bridge.Options{Servers: []bridge.ServerOptions{{Name: "counter", Adapter: counters}}})
	newer := streamable.New(b, streamable.Options{})
	site := httptest.NewServer(local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { newer.Serve("counter", w, r) })))

	ctx := context.Background()
	for _, client := range []string{"first", "second"} {
		t := &mcp.StreamableClientTransport{Endpoint: site.URL, HTTPClient: site.Client()}
		session, err := mcp.NewClient(&mcp.Implementation{Name: client, Version: "1.0.0"}, nil).Connect(ctx, t, nil)
		if err != nil {
			log.Fatal(err)
		}
		for range 2 {
			r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "count"})
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(client, r.Content[0].(*mcp.TextContent).Text)
		}
		session.Close()
	}

	b.Close(ctx)
	site.Close()
	// Output:
	// first 1
	// first 2
	// second 1
	// second 2
}
