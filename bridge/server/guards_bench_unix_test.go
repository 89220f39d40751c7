//go:build unix

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/config"
)

// instant is a server that answers at once.
type instant struct{}

func (instant) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return instant{}, nil
}

func (instant) Server() *bridge.Greeting {
	return &bridge.Greeting{Revision: "2025-11-25", Capabilities: []byte(`{"tools":{}}`),
		Result: []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"i","version":"1"}}`)}
}

func (instant) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":"done"}]}`)), nil
}

func (instant) Notify(context.Context, *bridge.Request) error { return nil }
func (instant) Close(context.Context) error                   { return nil }

// deaf is a stream that nobody reads.
type deaf struct{}

func (deaf) Send(replay.Event) bool { return true }

// cpu returns the time that this process has worked.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// guardLimit is what all guards together may cost a call.
const guardLimit = 8 * time.Microsecond

// BenchmarkGuards measures what all that guards and watches costs a call: the
// same call without any of it, with the defaults, metrics and an access log in a
// file, and with access rules and rates on top. The ways take turns within one
// run, and what counts is the time that the process has worked, also on behalf
// of calls that have ended.
func BenchmarkGuards(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
	often := limits.Rate{PerSecond: 1e8, Burst: 1e8}
	for _, era := range []string{"legacy", "modern"} {
		b.Run(era, func(b *testing.B) {
			access, err := accesslog.Open(config.AccessLog{To: filepath.Join(b.TempDir(), "calls.jsonl")}, "", quiet)
			if err != nil {
				b.Fatal(err)
			}
			defer access.Close(nil)
			m := metrics.New("")
			m.Set([]string{"i"})
			watch := func(r report.Report) {
				m.Take(&r)
				access.Take(&r)
			}
			plain := gateway.ServerOptions{Name: "i", Adapter: instant{}, ServerSettings: gateway.ServerSettings{Cache: cache.Options{Off: true}, Breaker: breaker.Options{Off: true}, Retry: retry.Options{Off: true}, Limits: limits.Options{Calls: 1 << 30}}}
			guarded := gateway.ServerOptions{Name: "i", Adapter: instant{}}
			ruled := guarded
			ruled.Limits = limits.Options{PerPrincipal: 100, Rate: often, Tools: map[string]limits.Rate{"e*": often, "echo": often}}
			ruled.Retry = retry.Options{Tools: true}
			ways := []struct {
				name string
				o    gateway.Options
				call func() error
				took time.Duration
			}{
				{name: "off", o: gateway.Options{Servers: []gateway.ServerOptions{plain}}},
				{name: "on", o: gateway.Options{Servers: []gateway.ServerOptions{guarded}, Watch: watch}},
				{name: "rules", o: gateway.Options{Servers: []gateway.ServerOptions{ruled}, Watch: watch, Common: gateway.Common{PerPrincipal: limits.PerPrincipal{Rate: often}}, Grants: map[string]filter.Grant{"p": {Allow: []string{"e*"}}}}},
			}
			for i := range ways {
				w := &ways[i]
				w.o.Log = quiet
				br := gateway.New(w.o)
				defer br.Close(context.Background())
				if w.call, err = caller(br, era); err != nil {
					b.Fatal(err)
				}
				for range 1000 { // what is looked up the first time
					if err := w.call(); err != nil {
						b.Fatal(w.name, err)
					}
				}
			}
			const batch = 2000
			rounds := 0
			for b.Loop() {
				for i := range ways {
					began := cpu(b)
					for range batch {
						if err := ways[i].call(); err != nil {
							b.Fatal(err)
						}
					}
					ways[i].took += cpu(b) - began
				}
				rounds++
			}
			each := func(i int) time.Duration { return ways[i].took / time.Duration(rounds*batch) }
			b.ReportMetric(0, "ns/op") // means nothing
			b.ReportMetric(float64(each(0)), "off-ns/call")
			b.ReportMetric(float64(each(1)-each(0)), "guards-ns/call")
			b.ReportMetric(float64(each(2)-each(0)), "guards+rules-ns/call")
			if lost := access.Lost(); lost > 0 {
				b.Logf("%d lines of the access log were lost", lost)
			}
			if rounds >= 10 && each(2)-each(0) > guardLimit {
				b.Errorf("all guards cost %v a call, want at most %v", each(2)-each(0), guardLimit)
			}
		})
	}
}

// caller returns what makes a call to the server, by a client of an era.
func caller(br gateway.Gateway, era string) (func() error, error) {
	if era == "modern" {
		line := []byte(callStateless("1", "tools/call", `"name":"echo","arguments":{}`))
		return func() error {
			m, err := jsonrpc.Parse(line)
			if err != nil {
				return err
			}
			s, no := gateway.NewStateless("i", "p", m)
			if no != nil {
				return errNo
			}
			s.Back, s.Header = deaf{}, http.Header{}
			s.Keep = func() func() { return func() {} }
			a, err := br.Call(context.Background(), m, *s)
			if err == nil && a.Error != nil {
				err = errNo
			}
			a.Release()
			return err
		}, nil
	}
	q, err := jsonrpc.Parse([]byte(initialize))
	if err != nil {
		return nil, err
	}
	s, _, err := br.Initialize(context.Background(), q, gateway.SessionOptions{Server: "i", ID: "id", Principal: "p"})
	if err != nil {
		return nil, err
	}
	line := []byte(call("1", "echo"))
	return func() error {
		m, err := jsonrpc.Parse(line)
		if err != nil {
			return err
		}
		a, err := s.Call(m, nil, deaf{})
		if err == nil && a.Error != nil {
			err = errNo
		}
		a.Release()
		return err
	}, nil
}

var errNo = errors.New("the call was refused")
