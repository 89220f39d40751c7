package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// end is a server whose calls do decides.
type end struct {
	bridge.Upstream
	do func(context.Context, *bridge.Request) (*jsonrpc.Message, error)
}

func (e end) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return e.do(ctx, r)
}
func (e end) Server() *bridge.Greeting { return &bridge.Greeting{Revision: "2026-07-28"} }

// rig is a server behind reports.
type rig struct {
	t       testing.TB
	c       *Calls
	reports *report.Reporter
	up      bridge.Upstream
}

func newRig(t testing.TB, do func(context.Context, *bridge.Request) (*jsonrpc.Message, error)) *rig {
	r := &rig{t: t, c: New()}
	t.Cleanup(r.c.Close)
	r.reports = report.New(func(p report.Report) { r.c.Take(&p) }, func(string, *bridge.Caller, *jsonrpc.Message) error { return nil }, func(http.Header) string { return "" }, nil)
	r.up = r.c.Wrap("one", r.reports.Server("one", func() string { return "" }).Wrap(end{do: do}))
	return r
}

// call makes a call as the gateway does.
func (r *rig) call(ctx context.Context, principal, tool string) (*jsonrpc.Message, error) {
	m := bridgetest.Parse(r.t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
	from := &bridge.Caller{Principal: principal, Revision: "2025-11-25", Params: []byte(`{"clientInfo":{"name":"app","version":"1.0"}}`)}
	came := r.reports.Arrive(new(report.Arrival), "", "", "1f0c9a7e", nil, "", nil)
	a, err := r.up.Call(ctx, &bridge.Request{Message: m, From: from, Back: bridge.Nobody{}, Call: came.Call()})
	return a, r.reports.Conclude(came, "one", from, m, a, err)
}

// heard is a Watcher that records its events.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprintf(format, args...))
}
func (h *heard) Begun(r *Row)          { h.add("begun %s", r.Name) }
func (h *heard) Marked(r *Row, m Mark) { h.add("%s of %s %s", m.What, r.Name, m.Text) }
func (h *heard) Ended(r *Row)          { h.add("ended %s %s", r.Name, r.Outcome) }

func everything(*Row) bool { return true }
func none() (int, uint64)  { return 0, 0 }

// During observation, calls are shown from their start to their end (O-031).
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
			switch r.GivenName() {
			case "wait":
				r.Back.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":3,"total":10}}`))
				r.Back.Ask(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}`), func(*jsonrpc.Message) {})
				<-ctx.Done()
				return nil, context.Cause(ctx)
			case "fail":
				return nil, &bridge.Error{Server: "one", Kind: bridge.ErrUnavailable, Public: "it is away", Err: errors.New("dial 10.0.0.7: secret")}
			case "bad":
				return jsonrpc.NewResult(nil, []byte(`{"isError":true,"content":[]}`)), nil
			case "error":
				return jsonrpc.NewError(nil, -32602, "no such thing", nil), nil
			}
			return jsonrpc.NewResult(nil, []byte(`{}`)), nil
		})
		for _, tool := range []string{"before", "bad", "fail"} {
			_, _ = r.call(t.Context(), "dev", tool)
		}
		if got := r.c.Show(10, everything); len(got.Recent) != 0 || got.Since != nil || len(got.Failures) != 2 || got.Failures[0].Error != "server one: it is away" || got.Failures[0].Outcome != "unavailable" || got.Failures[1].Outcome != "tool_error" {
			t.Errorf("while nobody looks: %+v", got)
		}
		var h heard
		done := r.c.Look(&h, false, func() (int, uint64) { return 7, 99 })
		for _, tool := range []string{"good", "bad", "error"} {
			_, _ = r.call(t.Context(), "dev", tool)
		}
		answer := make(chan error, 1)
		go func() {
			_, err := r.call(t.Context(), "ops", "wait")
			answer <- err
		}()
		synctest.Wait()
		got := r.c.Show(10, everything)
		if got.Before != 7 || len(got.Under) != 1 || len(got.Recent) != 3 || len(got.Failures) != 4 {
			t.Fatalf("%+v", got)
		}
		under := got.Under[0]
		if under.Took != nil || under.Principal != "ops" || under.Session != "1f0c9a7e" || under.Revision != "2025-11-25" || len(under.Marks) != 3 || under.Marks[0].Text != "3/10" || under.In == 0 {
			t.Errorf("under way: %+v", under)
		}
		if last := got.Recent[0]; last.Name != "error" || last.Outcome != "error" || last.Code != -32602 || last.Error != "no such thing" || last.Took == nil || last.Speaks != "2026-07-28" || last.Out == 0 {
			t.Errorf("the last one: %+v", last)
		}
		if mine := r.c.Show(10, func(r *Row) bool { return r.Principal == "dev" }); len(mine.Under) != 0 || len(mine.Recent) != 3 {
			t.Errorf("of one principal: %+v", mine)
		}
		if one := r.c.Find(under.ID); one == nil || one.Name != "wait" {
			t.Errorf("found %+v", one)
		}
		if r.c.Cancel("none") || !r.c.Cancel(under.ID) {
			t.Error("cancelling")
		}
		if err := <-answer; !errors.Is(err, bridge.ErrCancelled) || !strings.Contains(err.Error(), "operator") {
			t.Errorf("the client is told %v", err)
		}
		if r.c.Cancel(under.ID) || r.c.Find(under.ID).Outcome != "cancelled" {
			t.Error("after its end")
		}
		done()
		want := []string{
			"begun good", "ended good ok", "begun bad", "ended bad tool_error", "begun error", "ended error error",
			"begun wait", "progress of wait 3/10", "asked of wait elicitation/create", "answered of wait ", "ended wait cancelled",
		}
		if !slices.Equal(h.all, want) {
			t.Errorf("told\n%q, want\n%q", h.all, want)
		}
		time.Sleep(linger / 2)
		_, _ = r.call(t.Context(), "dev", "good")
		r.c.Look(nil, false, none)()
		time.Sleep(linger - time.Second)
		if got := r.c.Show(10, everything); len(got.Recent) != 5 || len(h.all) != len(want) {
			t.Errorf("before it ends: %+v", got)
		}
		time.Sleep(2 * time.Second)
		_, _ = r.call(t.Context(), "dev", "good")
		if got := r.c.Show(10, everything); len(got.Recent) != 0 || got.Since != nil {
			t.Errorf("after it has ended: %+v", got)
		}
	})
}

// A call whose client leaves before a server reported it does not stay in flight forever.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.c.Look(nil, false, none)()
		up := r.c.Wrap("one", end{do: func(context.Context, *bridge.Request) (*jsonrpc.Message, error) { // nothing is reported
			if n := len(r.c.Show(10, everything).Under); n != 1 {
				t.Errorf("%d under way", n)
			}
			return nil, bridge.ErrCancelled
		}})
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		_, _ = up.Call(t.Context(), &bridge.Request{Message: m, Call: new(report.Arrival)})
		if got := r.c.Show(10, everything); len(got.Under) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// ender is a Watcher that records ended calls.
type ender struct {
	quiet
	rows []*Row
}

func (e *ender) Ended(r *Row) { e.rows = append(e.rows, r) }

// Arguments and results are stored if the configuration allows it. It takes an observer who may see them, and
// ends a minute after the observation. The same holds for failures.
func TestCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
			return jsonrpc.NewResult(nil, []byte(`{"isError":true,"content":[{"type":"image"},{"type":"text","text":"\n db is away \nat line 2"}]}`)), nil
		})
		r.c.Traffic.Mask = func(raw []byte, _ int) ([]byte, bool) { return slices.Clone(raw), true }
		keeps := true
		r.c.Keeps = func() bool { return keeps }
		kept := func(when string, recent, failures int) {
			t.Helper()
			var got [2]int
			all := r.c.Show(100, everything)
			for n, rows := range [][]*Row{all.Recent, all.Failures} {
				for _, row := range rows {
					if row.Carried != nil {
						got[n]++
					}
					if want := map[bool]string{true: "db is away"}[row.Carried != nil]; row.Said != want || row.Explained().Error != want || row.Error != "" {
						t.Errorf("%s: the tool said %q, want %q", when, row.Said, want)
					}
				}
			}
			if got != [2]int{recent, failures} {
				t.Errorf("%s: %d calls and %d failures have what they carried, want %d and %d", when, got[0], got[1], recent, failures)
			}
		}
		call := func() { _, _ = r.call(t.Context(), "dev", "x") }
		e := &ender{}
		defer r.c.Look(e, false, none)() // an observer who may not see them
		call()
		kept("nobody looks who may see it", 0, 0)
		done := r.c.Look(nil, true, none)
		call()
		call()
		kept("an operator looks", 2, 2)
		keeps = false
		call()
		kept("the file does not say so any more", 0, 0)
		keeps = true
		call()
		kept("the file says so again", 1, 1)
		done()
		time.Sleep(linger - time.Second)
		call()
		kept("within a minute", 2, 2)
		time.Sleep(2 * time.Second)
		kept("after a minute", 0, 0)
		call()
		kept("long after", 0, 0)
		if all := r.c.Show(100, everything); len(all.Recent) != 7 || len(all.Failures) != 7 || all.Recent[0].ID != "7" {
			t.Errorf("%d calls, %d failures", len(all.Recent), len(all.Failures))
		}
		if len(e.rows) != 7 {
			t.Errorf("%d calls were told", len(e.rows))
		}
		for _, row := range e.rows {
			if row.Carried != nil {
				t.Error("who is told of a call holds what it carried")
			}
		}
	})
}

// Arguments and results of failures are dropped after the last observer leaves.
func TestCarriedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(context.Context, *bridge.Request) (*jsonrpc.Message, error) { return nil, bridge.ErrLost })
		r.c.Traffic.Mask = func(raw []byte, _ int) ([]byte, bool) { return slices.Clone(raw), true }
		r.c.Keeps = func() bool { return true }
		done := r.c.Look(nil, true, none)
		_, _ = r.call(t.Context(), "dev", "x")
		if all := r.c.Show(1, everything); len(all.Failures) != 1 || all.Failures[0].Carried == nil {
			t.Fatal("nothing is kept")
		}
		done()
		time.Sleep(2 * linger)
		if all := r.c.Show(1, everything); len(all.Failures) != 1 || all.Failures[0].Carried != nil {
			t.Error("it is kept for ever")
		}
	})
}

// Incomplete arguments and results are marked, so that no one repeats the call with them.
func TestCut(t *testing.T) {
	c := New()
	defer c.Close()
	c.Traffic.Mask = func(raw []byte, most int) ([]byte, bool) { return raw[:min(len(raw), most)], len(raw) <= most }
	long := `{"a":"` + strings.Repeat("x", maxCarried) + `"}`
	large := `{"a":"` + strings.Repeat("x", maxLooked) + `"}`
	for _, tc := range []struct {
		arguments, result string
		cut               []string
	}{{`{"a":1}`, `{}`, nil}, {long, `{}`, []string{"arguments"}}, {`{}`, long, []string{"result"}}, {large, large, []string{"arguments", "result"}}} {
		got := c.carried(&report.Report{
			Request: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":`+tc.arguments+`}}`),
			Answer:  jsonrpc.NewResult(nil, []byte(tc.result)),
		})
		if !slices.Equal(got.Cut, tc.cut) || len(tc.arguments) > maxLooked && got.Arguments+got.Result != "" {
			t.Errorf("%.20s, %.20s: cut %q, arguments %.20q", tc.arguments, tc.result, got.Cut, got.Arguments)
		}
	}
}

// An observer with access to few calls gets the full number of these. Calls do not wait while Show selects.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(context.Context, *bridge.Request) (*jsonrpc.Message, error) { return nil, bridge.ErrLost })
		defer r.c.Look(nil, false, none)()
		for range 3 {
			_, _ = r.call(t.Context(), "dev", "mine")
			time.Sleep(time.Second)
		}
		for range 20 {
			_, _ = r.call(t.Context(), "ops", "other")
			time.Sleep(time.Second)
		}
		asked := 0
		mine := func(row *Row) bool {
			asked++
			if !r.c.mu.TryLock() {
				t.Fatal("calls wait while rows are chosen")
			}
			r.c.mu.Unlock()
			return row.Principal == "dev"
		}
		got := r.c.Show(2, mine)
		if len(got.Failures) != 2 || len(got.Recent) != 2 || asked == 0 || got.Failures[0].ID != "3" || got.Failures[1].ID != "2" {
			t.Errorf("%d of %d failures and %d calls: %+v", len(got.Failures), asked, len(got.Recent), got.Failures)
		}
		if one := r.c.Find("2"); one == nil || one.Name != "mine" || one.Client != "app 1.0" || r.c.Find("99") != nil {
			t.Errorf("found %+v", one)
		}
	})
}

// All that is stored is bounded.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(context.Context, *bridge.Request) (*jsonrpc.Message, error) { return nil, bridge.ErrLost })
		defer r.c.Look(nil, false, none)()
		for range 2 * maxRecent {
			_, _ = r.call(t.Context(), "", strings.Repeat("x", 10*maxText))
		}
		got := r.c.Show(10*maxRecent, everything)
		if len(got.Recent) != maxRecent || len(got.Failures) != maxFailures || len(got.Recent[0].Name) != maxText {
			t.Errorf("%d, %d, %d", len(got.Recent), len(got.Failures), len(got.Recent[0].Name))
		}
		for range 2 * maxFailures {
			p := report.Report{Server: "one", Outcome: bridge.CircuitOpen, Err: bridge.ErrOpen, Request: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)}
			r.c.Take(&p)
		}
		if got := r.c.Show(10*maxRecent, everything); len(got.Failures) != 2*maxFailures {
			t.Errorf("%d failures: those that were refused displace their causes", len(got.Failures))
		}
		for n := range maxServers + 10 {
			p := report.Report{Server: fmt.Sprint(n), Outcome: bridge.Lost, Err: bridge.ErrLost, Request: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)}
			r.c.Take(&p)
		}
		if n := len(r.c.failures); n > maxServers {
			t.Errorf("%d servers", n)
		}
	})
}

// BenchmarkCall measures the cost of the wrapper (O-030).
func BenchmarkCall(b *testing.B) {
	ok := func(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
		return jsonrpc.NewResult(nil, []byte(`{}`)), nil
	}
	m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	from := &bridge.Caller{Principal: "p", Revision: "2025-11-25"}
	for _, tc := range []struct {
		name string
		wrap bool
		look Watcher
		// messages means that someone observes these too, carried with payloads.
		messages, carried bool
	}{{"without", false, nil, false, false}, {"nobody looks", true, nil, false, false}, {"somebody looks", true, quiet{}, false, false},
		{"somebody looks at messages", true, quiet{}, true, false}, {"and at what they carry", true, quiet{}, true, true}} {
		b.Run(tc.name, func(b *testing.B) {
			c := New()
			defer c.Close()
			reports := report.New(func(r report.Report) { c.Take(&r) }, func(string, *bridge.Caller, *jsonrpc.Message) error { return nil }, nil, nil)
			up := reports.Server("one", func() string { return "" }).Wrap(end{do: ok})
			if tc.wrap {
				up = c.Wrap("one", up)
			}
			if tc.look != nil {
				defer c.Look(tc.look, tc.carried, none)()
			}
			if tc.messages {
				c.Traffic.Mask = func(raw []byte, most int) ([]byte, bool) { return raw[:min(len(raw), most)], len(raw) <= most }
				defer c.Traffic.Look(reader(tc.carried))()
			}
			b.ReportAllocs()
			for b.Loop() {
				came := reports.Arrive(new(report.Arrival), "", "", "1f0c9a7e", nil, "", nil)
				if _, err := up.Call(context.Background(), &bridge.Request{Message: m, From: from, Back: bridge.Nobody{}, Call: came.Call()}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// reader observes messages; true with payloads.
type reader bool

func (r reader) Wants(string, string) (it, payload bool) { return true, bool(r) }
func (reader) Passed(*Message)                           {}

type quiet struct{}

func (quiet) Begun(*Row)        {}
func (quiet) Marked(*Row, Mark) {}
func (quiet) Ended(*Row)        {}
