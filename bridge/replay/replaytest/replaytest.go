// Package replaytest is the suite that every replay.Store has to pass.
package replaytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/replay"
)

// Run runs the suite. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) replay.Store) {
	const mark = 2 << 32
	write := func(t *testing.T, s replay.Store, all ...replay.Entry) {
		t.Helper()
		if err := s.Write(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	began := func(open ...string) replay.Entry {
		e := replay.Entry{
			Session: "session",
			Stream:  "pX",
			Kind:    replay.Began,
		}
		for _, id := range open {
			e.Open = append(e.Open, []byte(id))
		}
		return e
	}
	event := func(seq int64, open ...string) replay.Entry {
		e := began(open...)
		e.Kind, e.Seq, e.Data = replay.Added, seq, fmt.Appendf(nil, `{"event":%d}`, seq)
		return e
	}
	finished := func(seq int64) replay.Entry {
		return replay.Entry{
			Session: "session",
			Stream:  "pX",
			Kind:    replay.Finished,
			Seq:     seq,
		}
	}
	// taken returns the result of Take, or "forgotten", as a text.
	taken := func(t *testing.T, s replay.Store, seq, mark int64) string {
		t.Helper()
		got, err := s.Take(t.Context(), "session", "pX", seq, mark)
		switch {
		case errors.Is(err, replay.ErrForgotten):
			return "forgotten"
		case err != nil:
			t.Fatal(err)
		}
		var out []string
		for _, e := range got.Events {
			if want := fmt.Sprintf(`{"event":%d}`, e.Seq); string(e.Data) != want {
				t.Errorf("the event at %d is %s", e.Seq, e.Data)
			}
			out = append(out, fmt.Sprint(e.Seq))
		}
		for _, id := range got.Open {
			out = append(out, "open "+string(id))
		}
		if got.Finished {
			out = append(out, "finished")
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		name  string
		wrote []replay.Entry
		after int64
		want  string
	}{
		{"nothing", nil, 0, "forgotten"},
		{"nothing was said yet", []replay.Entry{began("1", `"1"`)}, 0, `open 1, open "1"`},
		{"each event once, none of a number at or below", []replay.Entry{began("1"), event(1, "1"), event(2, "1"), event(3, "1")}, 1, "2, 3, open 1"},
		{"the newest was seen", []replay.Entry{began("1"), event(1, "1")}, 1, "open 1"},
		{"more was seen than was copied", []replay.Entry{began("1"), event(1, "1")}, 2, "forgotten"},
		{"answered", []replay.Entry{began("1", "2"), event(1, "2"), event(2)}, 0, "1, 2"},
		{"finished", []replay.Entry{began("1"), event(1), finished(1)}, 0, "1, finished"},
		{"finished, and seen", []replay.Entry{began("1"), event(1), finished(1)}, 1, "finished"},
		{"given up", []replay.Entry{began("1"), event(1, "1"), {Session: "session", Stream: "pX", Kind: replay.Dropped}}, 0, "forgotten"},
		{"an answer could not be written", []replay.Entry{began("1"), event(1, "1"), finished(2)}, 1, "forgotten"},
		{"an event could not be written", []replay.Entry{began("1"), event(1, "1"), event(3, "1")}, 1, "forgotten"},
		{"nothing but the end was written", []replay.Entry{finished(2)}, 1, "forgotten"},
		{"what could not be written was seen", []replay.Entry{began("1"), event(1, "1"), event(3, "1"), event(4, "1")}, 2, "3, 4, open 1"},
		{"the beginning could not be written", []replay.Entry{event(1, "1"), event(2), finished(2)}, 0, "1, 2, finished"},
		{"another stream", []replay.Entry{{
			Session: "session",
			Stream:  "pY",
			Kind:    replay.Began,
		}, {
			Session: "other",
			Stream:  "pX",
			Kind:    replay.Began,
		}}, 0, "forgotten"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			write(t, s, c.wrote...)
			if got := taken(t, s, c.after, mark); got != c.want {
				t.Errorf("Take = %q, want %q", got, c.want)
			}
		})
	}
	// The store refuses late entries of the former owner, so no number comes twice (S-032).
	t.Run("fenced", func(t *testing.T) {
		s := open(t)
		write(t, s, began("1"), event(1, "1"))
		if got := taken(t, s, 0, mark); got != "1, open 1" {
			t.Errorf("Take = %q", got)
		}
		write(t, s, event(2), finished(2))
		if got := taken(t, s, 0, mark); got != "1, open 1" {
			t.Errorf("with late entries: Take = %q", got)
		}
		write(t, s, event(mark+1), finished(mark+1))
		if got, want := taken(t, s, 1, 3<<32), fmt.Sprint(int64(mark+1), ", finished"); got != strings.ReplaceAll(want, " ,", ",") {
			t.Errorf("with the next owner's entries: Take = %q, want %q", got, want)
		}
		if got := taken(t, s, mark+1, 3<<32); got != "finished" {
			t.Errorf("behind that: Take = %q", got)
		}
	})
	// The same holds if entries of the next owner are missing.
	t.Run("fenced, with a gap", func(t *testing.T) {
		s := open(t)
		write(t, s, began("1"), event(1, "1"))
		if got := taken(t, s, 0, mark); got != "1, open 1" {
			t.Errorf("Take = %q", got)
		}
		write(t, s, event(mark+2), finished(mark+2))
		if got := taken(t, s, 1, 3<<32); got != "forgotten" {
			t.Errorf("Take = %q", got)
		}
	})
	t.Run("fenced, and ended without a word", func(t *testing.T) {
		s := open(t)
		write(t, s, began(), event(1))
		if got := taken(t, s, 0, mark); got != "1" {
			t.Errorf("Take = %q", got)
		}
		write(t, s, finished(mark))
		if got := taken(t, s, 0, 3<<32); got != "1, finished" {
			t.Errorf("Take = %q", got)
		}
	})
	// The store keeps only the newest events. A client that has missed more gets none.
	t.Run("bounded", func(t *testing.T) {
		s := open(t)
		if _, ok := s.(*replay.Memory); ok {
			t.Skip("keeps all: it lives as long as a test")
		}
		all := []replay.Entry{began("1")}
		for seq := range int64(2000) {
			all = append(all, event(seq+1, "1"))
		}
		for some := range slices.Chunk(all, 100) {
			write(t, s, some...)
		}
		if got := taken(t, s, 10, mark); got != "forgotten" {
			t.Errorf("Take = %.60q", got)
		}
		if got := taken(t, s, 1995, mark); got != "1996, 1997, 1998, 1999, 2000, open 1" {
			t.Errorf("Take = %q", got)
		}
	})
}
