//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestProgress(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan *mcp.ProgressNotificationParams, 10)
			cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { got <- req.Params },
			})
			params := &mcp.CallToolParams{Name: "long-running-operation", Arguments: args{"duration": 60, "steps": 4}}
			params.SetProgressToken("token")
			began := time.Now()
			if _, err := cs.CallTool(t.Context(), params); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != time.Minute {
				t.Errorf("took %v, want a minute", took)
			}
			synctest.Wait()
			for n := 1; n <= 4; n++ {
				p := <-got
				if p.ProgressToken != "token" || p.Progress != float64(n) || p.Total != 4 {
					t.Errorf("progress %d is %+v", n, p)
				}
			}

			succeed(t, cs, "long-running-operation", args{"duration": 1})
			synctest.Wait()
			if len(got) > 0 {
				t.Errorf("%d progress notifications without a token", len(got))
			}
		})
	})
}

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
