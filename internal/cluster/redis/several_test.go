package redis_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// Any store that speaks as Redis does, such as Valkey, is tried with
// BRIDGE_TEST_STORE=HOST:PORT. It is not emptied.
func TestOther(t *testing.T) {
	address := os.Getenv("BRIDGE_TEST_STORE")
	if address == "" {
		t.Skip("tries the store at BRIDGE_TEST_STORE, which is not set")
	}
	clustertest.Run(t, stores(connect(t, "redis://"+address)))
}

// addresses are those of several servers in the URL of a Redis Cluster.
func addresses(servers []*redistest.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Address)
	}
	return strings.Join(all, ",")
}

// The store may be several masters of which each has a part of the keys. The rights that
// the documentation gives the user are enough there, too.
func TestCluster(t *testing.T) {
	servers := redistest.Cluster(t, 3)
	c := connect(t, "redis+cluster://"+allow(t, servers...)+addresses(servers))
	clustertest.Run(t, stores(c))
	for range 2 {
		seen, err := redis.New(c, options("A")).Beat(t.Context(), cluster.Member{ID: "A"}, time.Minute)
		if err != nil || len(seen.Members) != 1 || len(strings.Fields(seen.Run)) != 3 {
			t.Errorf("Beat = %+v, %v", seen, err)
		}
	}
}

// nobody is the other instances of one that is alone.
type nobody struct{}

func (nobody) Hello(context.Context, cluster.Member, cluster.Hello) (cluster.Hello, error) {
	return cluster.Hello{}, errors.New("there is nobody")
}
func (nobody) Disconnect(string) {}

// The master is killed, and its replica becomes the master, which has lost what was
// written last (S-062): the instance that has the sessions writes them again, and ends
// none.
func TestFailover(t *testing.T) {
	master, replica, sentinel := redistest.Sentinel(t)
	c := connect(t, "redis+sentinel://"+sentinel.Address+"/"+redistest.Main+"/0")
	ctx := t.Context()
	clustertest.Run(t, stores(c))
	store := redis.New(c, options("A"))
	n := cluster.New(cluster.Options{
		Self: cluster.Member{ID: "A"}, Store: store, Registry: store, Peers: nobody{}, Lease: 15 * time.Second, Life: time.Minute, MaxSessions: 10,
		Log: slog.New(slog.DiscardHandler), Lost: func(key string) { t.Errorf("%s was lost", key) },
	})
	n.Start("127.0.0.1:1")
	defer n.Close(context.Background())
	<-n.Joined()
	keys := []string{session.Key("early"), session.Key("late")}
	for _, key := range keys {
		if _, err := n.Put(ctx, session.Held{Record: session.Record{Key: key, Server: "files"}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n != 1; { // until the replica has them
		var err error
		if n, err = c.Do(ctx, "WAIT", 1, 1000).Int(); err != nil {
			t.Fatal(err)
		}
	}
	r := replica.Client()
	defer r.Close()
	if err := r.Del(ctx, "b:s:"+keys[1], "b:{m}:A").Err(); err != nil { // as if it had not come
		t.Fatal(err)
	}
	master.Kill()
	found := func(key string) bool {
		h, err := store.Find(ctx, key)
		return err == nil && h.Owner == "A"
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !found(keys[0]) || !found(keys[1]) {
		<-tick.C
	}
	if held := slices.DeleteFunc(keys, n.Holds); len(held) > 0 {
		t.Errorf("%v have ended", held)
	}
	for n.Await(ctx, session.Key("late")) != nil { // it waits for half a second at most: a beat may take longer here
	}
}
