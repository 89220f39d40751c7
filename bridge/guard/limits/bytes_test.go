package limits

import (
	"errors"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// listener is the client of a connection, which has the room of a principal.
type listener struct{ room Room }

var _ bridge.Roomy = listener{}

func (l listener) Room() bridge.Room { return l.room.Incoming() }

func (listener) Notify(*jsonrpc.Message) {}

func (listener) Ask(*jsonrpc.Message, func(*jsonrpc.Message)) func(string) { return nil }

func (listener) Gone(error) {}

// What one principal's servers say counts among its part while it comes, and is the
// part of whoever gets it. The room is taken once.
func TestIntake(t *testing.T) {
	b := NewBytes(8<<20, 2)
	intake := func(principal string) conn.Intake {
		return conn.New("server", nil, listener{b.Room(principal)}, conn.Timeouts{}).Intake()
	}
	under := func(total, bobs, alices int64) {
		t.Helper()
		if n, of := b.Used(), b.shares; n != total || of.Has("bob") != bobs || of.Has("alice") != alices {
			t.Errorf("%d bytes are under way, %d of bob, %d of alice, want %d, %d of bob, %d of alice", n, of.Has("bob"), of.Has("alice"), total, bobs, alices)
		}
	}
	own, all := intake("bob"), intake("")
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

	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"pad":"`+strings.Repeat("x", int(mb))+`"}}`)
	n := int64(m.Len())
	all.Give(m)
	under(n, 0, 0)
	all.Drop()
	for range 2 {
		if err := b.Weigh("all", &bridge.Caller{Principal: "alice"}, m); err != nil {
			t.Fatal(err)
		}
		under(n, 0, n)
	}
	m.Release()
	under(0, 0, 0)

	m = bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"pad":"`+strings.Repeat("x", int(mb))+`"}}`)
	take(&all, mb+100, true)
	all.Give(m)
	alice := b.Room("alice")
	if !alice.Reserve(int(5*mb + mb/2)) {
		t.Fatal("no room for alice")
	}
	if err := b.Weigh("all", &bridge.Caller{Principal: "alice"}, m); !errors.Is(err, bridge.ErrTooLarge) {
		t.Errorf("alice got more than her part: %v", err)
	}
	alice.Return(int(5*mb + mb/2))
	under(0, 0, 0)
}

// A principal that has its part of the room makes room of what is kept for its own
// clients only.
func TestRoomOfOthers(t *testing.T) {
	b := NewBytes(100_000, 2)
	kept := func(principal string) *replay.Log {
		l := replay.New(replay.Limits{Events: 9, Bytes: 1 << 20, Hard: 1 << 20, Room: b.Room(principal).Outgoing(), History: b.History()})
		if err := l.Append(replay.Event{Data: make([]byte, 5_000), Must: true}); err != nil {
			t.Fatal(err)
		}
		l.Leave()
		return l
	}
	others, own := kept("alice"), kept("bob")
	bob, all := b.Room("bob"), b.Room("")
	if !bob.Reserve(70_000) {
		t.Fatal("refused what there is room for")
	}
	if !bob.Reserve(4_000) || own.Bytes() != 0 {
		t.Fatalf("what is kept for bob did not make room for him: %d bytes", own.Bytes())
	}
	for range 3 {
		if bob.Reserve(4_000) {
			t.Fatal("bob got more than his part")
		}
	}
	if bob.Reserve(200_000) || all.Reserve(200_000) {
		t.Fatal("more than there can be")
	}
	if n := others.Bytes(); n != 5_000 {
		t.Fatalf("what is kept for alice made room for bob's part: %d bytes are left", n)
	}
	if !all.Reserve(26_000-5_000) || others.Bytes() != 5_000 {
		t.Fatal("what fits beside what is kept made that go")
	}
	if !all.Reserve(5_000) || others.Bytes() != 0 {
		t.Fatal("what is kept did not make room")
	}
	all.Return(26_000)
	bob.Return(74_000)
	if n := b.Used(); n != 0 {
		t.Fatalf("%d bytes are not given back", n)
	}
}
