package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// rememberer is a remote server that remembers, in each of its sessions, how often it was
// called.
type rememberer struct {
	*httptest.Server
	sessions atomic.Int32 // that have begun
	deleted  atomic.Int32
}

func startRememberer(t *testing.T) *rememberer {
	t.Helper()
	m := &rememberer{}
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		var calls atomic.Int32
		s := mcp.NewServer(&mcp.Implementation{Name: "memory", Version: "1"}, nil)
		type args struct {
			Message string `json:"message,omitempty"`
			MS      int    `json:"ms,omitempty"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Message}}}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "sleep"}, func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			for range 10 {
				select {
				case <-time.After(time.Duration(a.MS) * time.Millisecond / 10):
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
				if token := r.Params.GetProgressToken(); token != nil {
					_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1})
				}
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Message}}}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(calls.Add(1))}}}, nil, nil
		})
		return s
	}, nil)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			m.deleted.Add(1)
		case r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "":
			m.sessions.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// TestClusterRolling restarts all instances, one after the other, under calls: 10 a second, and with the whole matrix
// 200, or 100 if the race detector is on in the instances. No call fails that is
// shorter than the time to drain, and no session ends: those with child processes, which
// are started again, and those of a remote server. Sessions begin meanwhile, too (S-070).
func TestClusterRolling(t *testing.T) {
	t.Parallel()
	remote := startRememberer(t)
	f := newFleet(t, map[string]any{
		"child":  map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}},
		"remote": map[string]any{"http": map[string]any{"url": remote.URL}},
	})
	f.forgetful = true
	f.balance(3)
	var all []*legacyClient
	for i := range scaletest.Of(10, 40) {
		all = append(all, f.begin(f.base+"/"+[]string{"child", "remote"}[i%2]))
	}
	rate := time.Duration(scaletest.Of(10, 200))
	if whole && scaletest.Raced {
		rate = 100
	}
	var under sync.WaitGroup
	var calls, begun atomic.Int64
	faults := make(chan string, 1000)
	over, stop := context.WithCancel(t.Context())
	load := make(chan struct{})
	go func() {
		defer close(load)
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-over.Done():
				return
			}
			under.Go(func() {
				l := all[n%len(all)]
				var fault string
				switch {
				case n%100 == 0: // somebody new
					fault = l.begins()
					begun.Add(1)
				case n%10 == 1: // it is under way while sessions are given away
					fault = l.tries(fmt.Sprintf(`{"name":"sleep","arguments":{"message":"m%d","ms":700}}`, n), fmt.Sprint("m", n))
				default:
					fault = l.tries(fmt.Sprintf(`{"name":"echo","arguments":{"message":"m%d"}}`, n), fmt.Sprint("m", n))
				}
				if calls.Add(1); fault != "" {
					select {
					case faults <- fmt.Sprintf("call %d: %s", n, fault):
					default:
					}
				}
			})
		}
	}()
	for i := range f.instances {
		f.again(i)
	}
	stop()
	<-load
	under.Wait()
	close(faults)
	failed := 0
	for fault := range faults {
		if failed++; failed <= 20 {
			t.Error(fault)
		}
	}
	again := int64(0)
	for _, l := range all {
		again += l.again.Load()
	}
	t.Logf("%d calls, %d of them of new sessions, %d were to come again, %d failed", calls.Load(), begun.Load(), again, failed)
	if again > calls.Load()/4 {
		t.Errorf("%d of %d calls were to come again", again, calls.Load())
	}
	if began, ended := remote.sessions.Load(), remote.deleted.Load(); ended != 0 || int64(began) > int64(len(all)/2)+begun.Load() {
		t.Errorf("the remote server has begun %d sessions for %d clients, and was told of the end of %d", began, len(all)/2, ended)
	}
	for _, l := range all {
		if fault := l.tries(`{"name":"echo","arguments":{"message":"after"}}`, "after"); fault != "" {
			t.Errorf("afterwards: %s", fault)
		}
	}
}

// tries makes a call that has to be answered with that text, once. It returns what is
// wrong.
func (l *legacyClient) tries(params, text string) (fault string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id := fmt.Sprint(l.next.Add(1))
	began := time.Now()
	r := l.request(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":`+params+`}`)
	res, body, err := send(r)
	if err == nil && comeAgain(res) {
		l.again.Add(1)
		res, body, err = insist(r)
	}
	if err != nil {
		return fmt.Sprintf("%v after %v", err, time.Since(began))
	}
	if got := answers(body, id); res.StatusCode != http.StatusOK || len(got) != 1 || got[0].Get("result.content.0.text").Str != text {
		return fmt.Sprintf("%d %s after %v", res.StatusCode, body, time.Since(began))
	}
	return ""
}

// begins begins another session at the same place, and makes a call there.
func (l *legacyClient) begins() (fault string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fresh := &legacyClient{base: l.base}
	res, body, err := insist(fresh.request(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`))
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Sprintf("initialize: %v %s %v", res, body, err)
	}
	fresh.session = res.Header.Get("Mcp-Session-Id")
	return fresh.tries(`{"name":"echo","arguments":{"message":"new"}}`, "new")
}
