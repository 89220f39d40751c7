package gateway

import (
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// What a server says on a shared lane takes nobody's room in particular, and on
// another its principal's.
func TestRoomOfLane(t *testing.T) {
	for share, principal := range map[Share]string{ShareSession: "bob", ShareAll: ""} {
		f := &fake{}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
			begin(t, g, "bob")
			if f.wire(1).rest.(bridge.Roomy).Room() != g.Room(principal).Incoming() {
				t.Errorf("%s: not the room of %q", share, principal)
			}
		})
	}
}

// deafStream takes nothing.
type deafStream struct{}

func (deafStream) Send(replay.Event) bool { return false }

// A question that finds no room any more when it is to be put on a stream, and is
// taken back, does not take another one along.
func TestQuestionWithoutRoom(t *testing.T) {
	g := &gateway{bytes: limits.NewBytes(200_000, 0)}
	s := &sitting{g: g, caller: &bridge.Caller{}, ready: true}
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
	if !g.Room("").Reserve(119_000) {
		t.Fatal("no room for a request")
	}
	g.Room("").Outgoing().Force(1000) // somebody is quicker
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
