package gateway

import (
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// A principal that has its part of the room makes room of what is kept for its own
// clients only.
func TestRoomOfOthers(t *testing.T) {
	b := &Gateway{}
	b.bytes.most = 100_000
	b.bytes.portions = limits.NewShares(b.bytes.most, 2)
	kept := func(principal string) *replay.Log {
		l := b.NewLog(principal, replay.Limits{Events: 9, Bytes: 1 << 20, Hard: 1 << 20}, true)
		if err := l.Append(replay.Event{Data: make([]byte, 5_000), Must: true}); err != nil {
			t.Fatal(err)
		}
		l.Leave()
		return l
	}
	others, own := kept("alice"), kept("bob")
	bob := b.Room("bob")
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
	if bob.Reserve(200_000) || b.Reserve(200_000) {
		t.Fatal("more than there can be")
	}
	if n := others.Bytes(); n != 5_000 {
		t.Fatalf("what is kept for alice made room for bob's part: %d bytes are left", n)
	}
	if !b.Reserve(26_000-5_000) || others.Bytes() != 5_000 {
		t.Fatal("what fits beside what is kept made that go")
	}
	if !b.Reserve(5_000) || others.Bytes() != 0 {
		t.Fatal("what is kept did not make room")
	}
	b.Return(26_000)
	bob.Return(74_000)
	if n := b.bytes.used.Load(); n != 0 {
		t.Fatalf("%d bytes are not given back", n)
	}
}

// deafStream takes nothing.
type deafStream struct{}

func (deafStream) Send(replay.Event) bool { return false }

// A question that finds no room any more when it is to be put on a stream, and is
// taken back, does not take another one along.
func TestQuestionWithoutRoom(t *testing.T) {
	b := &Gateway{}
	b.bytes.most = 200_000
	b.bytes.portions = limits.NewShares(b.bytes.most, 0)
	s := &Session{b: b, caller: &bridge.Caller{}, ready: true}
	s.questions = map[string]*question{}
	for _, id := range []string{"1", "2"} {
		size := map[string]int{"1": 1000, "2": 80_000}[id]
		q := &question{timer: time.NewTimer(time.Hour), reply: func(*jsonrpc.Message) {}}
		if _, ok := s.put(replay.Event{Data: make([]byte, size), Must: true}); !ok {
			t.Fatal("no room to begin with")
		}
		s.placed(q, nil)
		s.questions[id] = q
	}
	if !b.Reserve(119_000) {
		t.Fatal("no room for a request")
	}
	b.bytes.used.Add(1000) // somebody is quicker
	s.streams = []*attachment{{deafStream{}}}
	s.flush()
	if n := s.pending.Bytes(); n != 1000 {
		t.Fatalf("%d bytes are pending, want the small question", n)
	}
	s.withdraw("2", s.questions["2"], "")
	if n := s.pending.Bytes(); n != 1000 {
		t.Error("the question that waits was taken back with the one that found no room")
	}
}
