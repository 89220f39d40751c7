package redis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/bridge/session/sessiontest"
	"github.com/mcp-bridge/bridge/internal/cluster"
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
	c, err := redis.Connect("redis://"+address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sessiontest.Run(t, func(*testing.T) func(string) session.Store {
		o := options("")
		o.Prefix = "test-" + rand.Text()
		return func(owner string) session.Store {
			o.Owner = owner
			return redis.New(c, o)
		}
	})
	o := options("A")
	o.Prefix = "test-" + rand.Text()
	if seen, err := redis.New(c, o).Beat(t.Context(), cluster.Member{ID: "A"}, time.Minute); err != nil || len(seen.Members) != 1 || seen.Run == "" {
		t.Errorf("Beat = %+v, %v", seen, err)
	}
}

// The store may be several masters of which each has a part of the keys. The rights that
// the documentation gives the user are enough there, too.
func TestCluster(t *testing.T) {
	servers := redistest.Cluster(t, 3)
	ctx := t.Context()
	var hosts []string
	empty := func() {
		for _, s := range servers {
			admin := s.Client()
			if err := admin.FlushAll(ctx).Err(); err != nil {
				t.Error(err)
			}
			_ = admin.Close()
		}
	}
	for _, s := range servers {
		hosts = append(hosts, s.Address)
		admin := s.Client()
		if err := admin.Do(ctx, append([]any{"ACL", "SETUSER", "bridge", "on", ">password", "~b:*"}, rights()...)...).Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Close()
	}
	c, err := redis.Connect("redis+cluster://bridge:password@"+strings.Join(hosts, ","), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sessiontest.Run(t, func(*testing.T) func(string) session.Store {
		empty()
		return func(owner string) session.Store { return redis.New(c, options(owner)) }
	})
	for range 2 {
		seen, err := redis.New(c, options("A")).Beat(ctx, cluster.Member{ID: "A"}, time.Minute)
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
	c, err := redis.Connect("redis+sentinel://"+sentinel.Address+"/"+redistest.Main+"/0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	sessiontest.Run(t, func(t *testing.T) func(string) session.Store {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return func(owner string) session.Store { return redis.New(c, options(owner)) }
	})
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
