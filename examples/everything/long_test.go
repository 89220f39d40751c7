//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestCancellation(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan float64, 10000)
			cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { got <- req.Params.Progress },
			})
			params := &mcp.CallToolParams{Name: "long-running-operation", Arguments: args{"duration": 1000, "steps": 1000}}
			params.SetProgressToken("token")
			ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
			defer cancel()
			if _, err := cs.CallTool(ctx, params); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a cancelled call answers %v", err)
			}
			pass(time.Hour)
			if n := len(drain(got)); n != 4 {
				t.Errorf("%d steps of a call that was cancelled after 4", n)
			}
			succeed(t, cs, "echo", args{"message": "still here"})
		})
	})
}

// A call in flight must not hold up the end of its session.
func TestSessionEndsDuringCall(t *testing.T) {
	for _, end := range []string{"client", "server"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newInstance(testSettings())
				serverEnd, clientEnd := mcp.NewInMemoryTransports()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ss, err := i.server.Connect(ctx, serverEnd, nil)
				if err != nil {
					t.Fatal(err)
				}
				conn, err := clientEnd.Connect(ctx)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for _, m := range []string{
					`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
					`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"long-running-operation","arguments":{"duration":3600}}}`,
				} {
					send(t, conn, m)
				}
				if _, err := conn.Read(ctx); err != nil { // the answer to initialize
					t.Fatal(err)
				}
				synctest.Wait()
				if end == "client" {
					_ = conn.Close()
				} else {
					go i.close()
					if _, err := conn.Read(ctx); err != nil { // the cancelled call's answer, or the end
						t.Log(err)
					}
				}
				_ = ss.Wait()
				i.wg.Wait()
				_ = conn.Close()
				if took := time.Since(began); took > time.Second {
					t.Errorf("ending took %v", took)
				}
			})
		})
	}
}

// TestLogDuringCall covers the only log messages that a modern client can get.
func TestLogDuringCall(t *testing.T) {
	for _, tt := range []struct {
		revision, level string
		want            int
	}{
		{revisionLegacy, "debug", 3},
		{revisionLegacy, "info", 0},
		{revisionModern, "debug", 3},
		{revisionModern, "info", 0},
		{revisionModern, "", 0},
	} {
		t.Run(tt.revision+" "+tt.level, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan *mcp.LoggingMessageParams, 10)
				cs := connect(t, testSettings(), tt.revision, &mcp.ClientOptions{
					LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { got <- req.Params },
				})
				params := &mcp.CallToolParams{Name: "long-running-operation", Arguments: args{"steps": 3}}
				if tt.revision == revisionLegacy {
					setLevel(t, cs, mcp.LoggingLevel(tt.level))
				} else if tt.level != "" {
					params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: tt.level}
				}
				if _, err := cs.CallTool(t.Context(), params); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(got) != tt.want {
					t.Errorf("%d messages, want %d", len(got), tt.want)
				}
			})
		})
	}
}

// send writes a raw message.
func send(t *testing.T, conn mcp.Connection, raw string) {
	t.Helper()
	m, err := jsonrpc.DecodeMessage([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func setLevel(t *testing.T, cs *mcp.ClientSession, level mcp.LoggingLevel) {
	t.Helper()
	if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, and due events happen. Inside a bubble it takes no time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// drain returns the messages that have arrived.
func drain[T any](ch chan T) []T {
	var all []T
	for {
		select {
		case v := <-ch:
			all = append(all, v)
		default:
			return all
		}
	}
}

func TestSubscriptionsAreForgotten(t *testing.T) {
	i := newInstance(testSettings())
	defer i.close()
	one, two := &mcp.ServerSession{}, &mcp.ServerSession{}
	const uri = "demo://resource/dynamic/text/1"
	for _, ss := range []*mcp.ServerSession{one, one, two} {
		if err := i.subscribe(t.Context(), &mcp.SubscribeRequest{Session: ss, Params: &mcp.SubscribeParams{URI: uri}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		leaves *mcp.ServerSession
		want   int
	}{{one, 1}, {two, 0}} {
		if err := i.unsubscribe(t.Context(), &mcp.UnsubscribeRequest{Session: tt.leaves, Params: &mcp.UnsubscribeParams{URI: uri}}); err != nil {
			t.Fatal(err)
		}
		if got := i.subscribedURIs(); len(got) != tt.want {
			t.Errorf("subscribed are %v, want %d", got, tt.want)
		}
	}
}
