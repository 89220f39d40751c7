package redis_test

import (
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// Redis is killed amid operations, three times.
func TestLinear(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	// The library tries again by itself what may have been done: that would be two operations.
	c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{server.Address}, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	var mu sync.Mutex // held while the server is away
	kills := 0
	clustertest.Linear(t, func(owner string) session.Store { return redis.New(c, options(owner)) }, func(done int) {
		mu.Lock()
		defer mu.Unlock()
		if kills < 3 && done >= 250*(kills+1) {
			kills++
			server.Kill()
			server.Run()
		}
	})
}
