package conn_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A transport takes messages from a Queue, and delivers what the server sends. Here the server is a few lines of Go.
// Conn makes the handshake, numbers the calls, and finds the call of each answer.
func Example() {
	over := errors.New("the connection was closed")
	out := conn.NewQueue(1<<20, func() { log.Fatal(conn.ErrFull) })
	c := conn.New("greeter", out, bridge.Nobody{}, conn.Timeouts{Idle: time.Minute})
	results := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"greeter","version":"1"}}`,
		"tools/call": `{"content":[{"type":"text","text":"Hello, Ada!"}]}`,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			o, err := out.Take()
			if err != nil {
				return
			}
			fmt.Println("->", o.Method, o.Call)
			o.Line.Free() // a transport writes o.Line.B before
			if o.Call == 0 {
				continue // a notification
			}
			answer, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, o.Call, results[o.Method]))
			if err != nil {
				log.Fatal(err)
			}
			c.Deliver(answer)
		}
	}()

	ctx := context.Background()
	from := &bridge.Caller{
		Revision:     "2025-11-25",
		Capabilities: []byte(`{}`),
		Params:       []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"example","version":"1"}}`),
	}
	greeting, err := conn.Handshake(ctx, c, from, "")
	if err != nil {
		log.Fatal(err)
	}
	call := jsonrpc.NewRequest("tools/call", []byte(`{"name":"greet","arguments":{"name":"Ada"}}`))
	answer, err := c.Call(ctx, &bridge.Request{Message: call, From: from})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("<-", string(answer.Result), "in", greeting.Revision)

	c.Fail(over)
	out.Stop(over, over)
	<-ended
	// Output:
	// -> initialize 1
	// -> notifications/initialized 0
	// -> tools/call 2
	// <- {"content":[{"type":"text","text":"Hello, Ada!"}]} in 2025-11-25
}
