package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// These are the halves of each answer of the server of Intake.
var (
	beginning = `{"jsonrpc":"2.0","id":%s,"result":{"pad":"` + strings.Repeat("x", 300<<10)
	ending    = strings.Repeat("y", 100<<10) + `"}}`
)

// Halves returns the answer of the server of Intake to a call with that raw id. For the tool "whole",
// the server sends both halves at once. For "halves", it sends the second half after it has received
// Rest.
func Halves(id string) (first, second string) { return fmt.Sprintf(beginning, id), ending }

// Rest is the method of the notification after which the server sends the second half.
const Rest = "notifications/roots/list_changed"

// Intake checks that received bytes count among the bytes in flight, that a message without room is
// refused, and that reserved bytes are returned. a must open a connection of its own for each session.
func Intake(t *testing.T, a bridge.Adapter) {
	g := gateway.New(gateway.Options{
		MaxBytes: 1 << 20,
		Log:      slog.New(slog.DiscardHandler),
		Servers:  []gateway.ServerOptions{{Name: "fake", Adapter: a}},
	})
	defer g.Close(context.Background())
	begin := func(id string) gateway.Session {
		s, _, err := g.Initialize(t.Context(), Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}`), gateway.SessionOptions{Server: "fake", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		s.Notify(Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
		return s
	}
	type outcome struct {
		answer *jsonrpc.Message
		err    error
	}
	call := func(s gateway.Session, tool string) chan outcome {
		done := make(chan outcome, 1)
		m := Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
		go func() {
			a, err := s.Call(m, nil, nil)
			done <- outcome{a, err}
		}()
		return done
	}
	bytes := func(least, most int64) {
		t.Helper()
		for n := g.Totals().Bytes; n < least || n > most; n = g.Totals().Bytes {
			time.Sleep(5 * time.Millisecond)
		}
	}
	one, other := begin("one"), begin("other")
	bytes(0, 0)
	first := call(one, "halves")
	bytes(300<<10, 512<<10)
	o := <-call(other, "whole")
	if text := string(o.answer.Append(nil, nil, nil)); !errors.Is(o.err, bridge.ErrTooLarge) ||
		!strings.Contains(text, "the answer does not fit into max_bytes_in_flight; the call was executed") {
		t.Errorf("what had no room was answered with %.200s, %v", text, o.err)
	}
	if n := g.Totals().Refused["bytes"]; n != 1 {
		t.Errorf("%d answers are counted as refused, want 1", n)
	}
	bytes(300<<10, 512<<10)
	one.Notify(Parse(t, `{"jsonrpc":"2.0","method":"`+Rest+`"}`), nil)
	o = <-first
	if o.err != nil || len(o.answer.Result) < 400<<10 {
		t.Fatalf("the answer that came in halves: %d bytes, %v", len(o.answer.Result), o.err)
	}
	bytes(400<<10, 400<<10+1000) // the answer counts once, with its own size
	o.answer.Release()
	bytes(0, 0)
	if o = <-call(other, "whole"); o.err != nil || len(o.answer.Result) < 400<<10 {
		t.Fatalf("the server whose answer had no room answers with %d bytes, %v", len(o.answer.Result), o.err)
	}
	o.answer.Release()
	last := call(one, "halves")
	bytes(300<<10, 512<<10)
	one.End(bridge.ErrEnded)
	if o = <-last; o.err == nil {
		t.Error("a session that has ended had an answer")
	}
	bytes(0, 0)
}
