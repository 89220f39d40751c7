package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// What one principal's servers say counts among its part while it comes, and is the
// part of whoever gets it. The room is taken once.
func TestIntake(t *testing.T) {
	b := New(Options{MaxBytes: 8 << 20, Servers: []ServerOptions{{Name: "own", Adapter: &fake{}}, {Name: "all", Adapter: &fake{}, Share: ShareAll}}})
	defer b.Close(context.Background())
	b.bytes.portions = limits.NewShares(b.bytes.most, 2)
	intake := func(server string) conn.Intake {
		w := &wire{l: newLane(b.route(server), &bridge.Caller{Principal: "bob"}, bridge.Nobody{}, (*origin)(nil))}
		return conn.New(server, nil, w, conn.Timeouts{}).Intake()
	}
	under := func(total, bobs, alices int64) {
		t.Helper()
		if n, of := b.bytes.used.Load(), b.bytes.portions; n != total || of.Has("bob") != bobs || of.Has("alice") != alices {
			t.Errorf("%d bytes are under way, %d of bob, %d of alice, want %d, %d of bob, %d of alice", n, of.Has("bob"), of.Has("alice"), total, bobs, alices)
		}
	}
	own, all := intake("own"), intake("all")
	if n := testing.AllocsPerRun(100, func() {
		if !own.Size(lightAnswer) {
			t.Error("a small message has no room")
		}
		own.Drop()
	}); n != 0 {
		t.Errorf("a small message allocates %v times", n)
	}
	under(0, 0, 0)
	const kb, mb = int64(1 << 10), int64(1 << 20)
	take := func(in *conn.Intake, size int64, want bool) {
		t.Helper()
		if in.Size(int(size)) != want {
			t.Errorf("room for %d bytes: %v", size, !want)
		}
	}
	take(&own, 64*kb+1, true)
	take(&own, 100*kb, true)
	under(128*kb, 128*kb, 0)
	take(&own, 5*mb, false) // 8 MB are more than three quarters
	under(128*kb, 128*kb, 0)
	own.Size(0)
	under(0, 0, 0)
	own.Drop()
	take(&own, 4*mb, true)
	take(&all, 3*mb, false) // an eighth is for requests
	take(&all, 2*mb, true)
	under(6*mb, 4*mb, 0)
	own.Drop()

	a := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"pad":"`+strings.Repeat("x", int(mb))+`"}}`)
	n := int64(a.Len())
	all.Give(a)
	under(n, 0, 0)
	all.Drop()
	for range 2 {
		if err := b.weigh("all", &bridge.Caller{Principal: "alice"}, a); err != nil {
			t.Fatal(err)
		}
		under(n, 0, n)
	}
	a.Release()
	under(0, 0, 0)

	a = bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"pad":"`+strings.Repeat("x", int(mb))+`"}}`)
	take(&all, mb+100, true)
	all.Give(a)
	alice := b.Room("alice")
	if !alice.Reserve(int(5*mb + mb/2)) {
		t.Fatal("no room for alice")
	}
	if err := b.weigh("all", &bridge.Caller{Principal: "alice"}, a); !errors.Is(err, bridge.ErrTooLarge) {
		t.Errorf("alice got more than her part: %v", err)
	}
	alice.Return(int(5*mb + mb/2))
	under(0, 0, 0)
}
