package rest_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

const document = `
openapi: 3.1.0
info: { title: Greeter, version: "1" }
paths:
  /greetings/{name}:
    get:
      operationId: greet
      summary: Greets somebody
      parameters: [{ name: name, in: path, required: true, schema: { type: string } }]
      responses: { "200": { description: The greeting, content: { text/plain: { schema: { type: string } } } } }
`

// Each operation of a document is a tool. The adapter calls the API, and answers with what the API says.
func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /greetings/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello, %s! Your key is %s.", r.PathValue("name"), r.Header.Get("X-API-Key"))
	})
	api := httptest.NewServer(mux)
	defer api.Close()
	a, err := rest.New("greeter", rest.Config{
		OpenAPI:  "greeter.yaml", // the name in messages
		Document: []byte(document),
		BaseURL:  api.URL,
		Headers:  map[string]string{"X-API-Key": "k-1"},
	}, rest.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()

	ctx := context.Background()
	from := &bridge.Caller{Revision: "2025-11-25", Capabilities: []byte(`{}`)}
	up, err := a.Open(ctx, from, bridge.Nobody{})
	if err != nil {
		log.Fatal(err)
	}
	defer up.Close(ctx)
	r := jsonrpc.NewRequest("tools/call", []byte(`{"name":"greet","arguments":{"name":"Ada"}}`))
	answer, err := up.Call(ctx, &bridge.Request{Message: r, From: from})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(answer.Result))
	// Output: {"content":[{"type":"text","text":"Hello, Ada! Your key is k-1."}]}
}
