package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// parent is an Adapter whose connections have child processes.
type parent struct {
	*wiretest.Server
	pid int
}

// Open implements bridge.Adapter.
func (p *parent) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	up, err := p.Server.Open(ctx, from, rest)
	return &child{up, p.pid}, err
}

type child struct {
	bridge.Upstream
	pid int
}

// Pid returns the process.
func (c *child) Pid() int { return c.pid }

// When the children of servers use half of the memory, the log says so once, and which servers
// these are. Without children, nobody looks.
func TestWatchMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, pids := config.Default(), map[string]int{"files": 101, "browser": 102}
		c.Servers = []config.Server{config.DefaultServer("files", ""), config.DefaultServer("browser", "")}
		var log bytes.Buffer
		s := build(&c, slog.New(slog.NewTextHandler(&log, nil)), func(_ *server, one *config.Server) backend {
			return backend{Adapter: &parent{&wiretest.Server{}, pids[one.Name]}, transport: func() string { return "stdio" }}
		})
		var looks, mib atomic.Int64
		mib.Store(100)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.watchMemory(ctx, 1000<<20, func() health.Used {
				looks.Add(1)
				return health.Used{101: {RSS: mib.Load() << 20}, 102: {RSS: 3 * mib.Load() << 20}, 103: {RSS: 1 << 40}}
			})
		}()
		time.Sleep(5 * measureEvery)
		synctest.Wait()
		if looks.Load() != 1 {
			t.Errorf("it was looked %d times while there were no children", looks.Load()-1)
		}
		site := wiretest.NewSiteFrom(t, s.http)
		for _, path := range []string{"/files/mcp", "/browser/mcp"} {
			if r := site.Do("POST", path, initialize).Wait(); r.Status() != 200 {
				t.Fatalf("%s: %d %s", path, r.Status(), r.Body())
			}
		}
		time.Sleep(measureEvery + time.Second)
		synctest.Wait()
		if strings.Contains(log.String(), "use half of the memory") {
			t.Errorf("it warns of 400 MiB:\n%s", log.String())
		}
		mib.Store(150)
		time.Sleep(3 * measureEvery)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it goes on after the warning")
		}
		if n := strings.Count(log.String(), "use half of the memory"); n != 1 || !strings.Contains(log.String(), `used_mib=600 of_mib=1000 servers="browser 450 MiB, files 150 MiB"`) {
			t.Errorf("it warns %d times:\n%s", n, log.String())
		}
		stop()
		<-ended
		s.Close(context.Background())
	})
}
