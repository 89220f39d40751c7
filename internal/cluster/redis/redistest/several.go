package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/internal/porttest"
)

// Main is the name of the master that Sentinel watches.
const Main = "main"

// Sentinel starts a master, a writable replica and a Sentinel. When the master is killed, the Sentinel makes the
// replica the master.
func Sentinel(t testing.TB) (master, replica, sentinel *Server) {
	t.Helper()
	master = Start(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(master.Address)
	replica = Start(t, "--replicaof", "127.0.0.1", port, "--replica-read-only", "no")
	c := replica.Client()
	defer c.Close()
	until(t, "the replica follows", func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	sentinel = &Server{
		Address: porttest.Address(t),
		t:       t,
		dir:     t.TempDir(),
	}
	_, at, _ := net.SplitHostPort(sentinel.Address)
	file := filepath.Join(sentinel.dir, "sentinel.conf") // Sentinel rewrites this file
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %s 1\nsentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 5000\n",
		at, sentinel.dir, Main, port, Main, Main)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel.run(file, "--sentinel")
	t.Cleanup(sentinel.Kill)
	s := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Address})
	defer s.Close()
	until(t, "Sentinel knows the replica", func() bool {
		all, err := s.Replicas(context.Background(), Main).Result()
		return err == nil && len(all) == 1 && all[0]["flags"] == "slave" && all[0]["master-link-status"] == "ok"
	})
	return master, replica, sentinel
}

// Cluster starts a Redis Cluster of n masters.
func Cluster(t testing.TB, n int) (all []*Server) {
	t.Helper()
	ctx := context.Background()
	const slots = 16384
	var bus []string
	for i := range n {
		port := strconv.Itoa(porttest.Reserve(t)) // the default is port+10000, which may be too high
		s := Start(t, "--cluster-enabled", "yes", "--cluster-port", port)
		all, bus = append(all, s), append(bus, port)
		c := s.Client()
		defer c.Close()
		if err := c.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatal(err)
		}
		host, first, _ := net.SplitHostPort(all[0].Address)
		if i > 0 {
			if err := c.Do(ctx, "CLUSTER", "MEET", host, first, bus[0]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range all {
		c := s.Client()
		defer c.Close()
		until(t, "the cluster is one", func() bool {
			info := c.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprint("cluster_known_nodes:", n))
		})
	}
	return all
}

// until waits until is returns true, which depends on another process.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	t.Logf("waiting: %s", what)
	for !is() {
		time.Sleep(10 * time.Millisecond)
	}
}
