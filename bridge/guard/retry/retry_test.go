package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// scripted is an Upstream whose nth call does what one says.
type scripted struct {
	bridge.Upstream
	calls atomic.Int64
	do    func(ctx context.Context, n int, r *bridge.Request) (*jsonrpc.Message, error)
}

func (s *scripted) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return s.do(ctx, int(s.calls.Add(1)), r)
}

func (*scripted) Server() *bridge.Greeting { return &bridge.Greeting{Revision: era.LatestLegacy} }

func failing(err error) *scripted {
	return &scripted{do: func(context.Context, int, *bridge.Request) (*jsonrpc.Message, error) { return nil, err }}
}

// retried runs f in a bubble with what makes calls again.
func retried(t *testing.T, o Options, f func(t *testing.T, r *Retries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, New(o, nil, slog.New(slog.DiscardHandler), t.Context())) })
}

func requested(t testing.TB, method, params string) *bridge.Request {
	return &bridge.Request{Message: bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)), From: &bridge.Caller{}, Back: bridge.Nobody{}}
}

func failure(kind error) *bridge.Error {
	return &bridge.Error{Server: "fake", Kind: kind, Public: "it failed"}
}

// promised runs f in a bubble with an Upstream that retries, below a wrapper that knows which
// tools promise that they may be called twice.
func promised(t *testing.T, o Options, f func(t *testing.T, wrap func(bridge.Upstream) bridge.Upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		known := tools.New("fake", tools.Options{Idempotent: o.Tools}, log)
		r := New(o, known.Idempotent, log, t.Context())
		f(t, func(up bridge.Upstream) bridge.Upstream { return known.Wrap(r.Wrap(up)) })
	})
}

const annotated = `{"tools":[
{"name":"reads","annotations":{"readOnlyHint":true}},
{"name":"sets","annotations":{"idempotentHint":true,"destructiveHint":true}},
{"name":"says both","annotations":{"readOnlyHint":true,"destructiveHint":true}},
{"name":"sends","annotations":{"readOnlyHint":false,"idempotentHint":false}},
{"name":"words","annotations":{"readOnlyHint":"true","idempotentHint":1}},
{"name":"silent"}]}`

// After which failures a call is made again, and when.
func TestRetryErrors(t *testing.T) {
	after := func(kind error, d time.Duration) error {
		return &bridge.Error{Server: "fake", Kind: kind, Public: "later", After: d}
	}
	for _, test := range []struct {
		name        string
		err         error
		again       bool
		least, most time.Duration
	}{
		{"lost", failure(bridge.ErrLost), true, 0, 100 * time.Millisecond},
		{"unavailable", failure(bridge.ErrUnavailable), true, 0, 100 * time.Millisecond},
		{"no valid answer", failure(bridge.ErrInvalid), true, 0, 100 * time.Millisecond},
		{"timed out", failure(bridge.ErrTimeout), true, 0, 100 * time.Millisecond},
		{"in a second", after(bridge.ErrUnavailable, time.Second), true, time.Second, 1100 * time.Millisecond},
		{"declined, in a second", after(bridge.ErrRejected, time.Second), true, time.Second, 1100 * time.Millisecond},
		{"in a minute", after(bridge.ErrUnavailable, time.Minute), false, 0, 0},
		{"declined", failure(bridge.ErrRejected), false, 0, 0},
		{"credentials", failure(bridge.ErrCredentials), false, 0, 0},
		{"left alone", after(bridge.ErrOpen, time.Second), false, 0, 0},
		{"overloaded", &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded, Public: "full"}, false, 0, 0},
		{"refused to initialize", &bridge.Error{Server: "fake", Kind: bridge.ErrNoHandshake, Public: "no"}, false, 0, 0},
		{"another", &bridge.Error{Server: "fake", Kind: bridge.ErrLost, Err: bridge.ErrReplaced, Public: "another"}, false, 0, 0},
		{"not sent", failure(bridge.ErrUnsent), false, 0, 0},
		{"stopping", bridge.ErrShutdown, false, 0, 0},
		{"cancelled", bridge.ErrCancelled, false, 0, 0},
		{"too large", failure(bridge.ErrTooLarge), false, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			retried(t, Options{}, func(t *testing.T, r *Retries) {
				s := failing(test.err)
				at := time.Now()
				_, err := r.Wrap(s).Call(t.Context(), requested(t, "tools/list", `{}`))
				if again := s.calls.Load() == 2; again != test.again || !errors.Is(err, test.err) {
					t.Errorf("made %d times: %v", s.calls.Load(), err)
				}
				if took := time.Since(at); took < test.least || took > test.most {
					t.Errorf("after %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

// The second attempt is given what the first one was, and its answer counts.
func TestRetryRequest(t *testing.T) {
	retried(t, Options{}, func(t *testing.T, r *Retries) {
		s := &scripted{}
		var got []string
		s.do = func(_ context.Context, n int, r *bridge.Request) (*jsonrpc.Message, error) {
			got = append(got, fmt.Sprint(string(r.Params), r.Header, r.From.Principal))
			r.Header, r.Message, r.From = nil, nil, nil // as what is below may
			if n == 1 {
				return nil, failure(bridge.ErrLost)
			}
			return jsonrpc.NewResult(nil, []byte(`{"n":2}`)), nil
		}
		q := requested(t, "resources/read", `{"uri":"a:"}`)
		q.From, q.Header = &bridge.Caller{Principal: "p"}, map[string][]string{"X": {"1"}}
		m, err := r.Wrap(s).Call(t.Context(), q)
		if err != nil || string(m.Result) != `{"n":2}` || len(got) != 2 || got[0] != got[1] {
			t.Errorf("%s, %v; asked %q", bridgetest.Text(m), err, got)
		}
	})
}

// Whoever has been told or asked something is not told or asked it twice, and
// who has waited for long does not wait for as long again.
func TestRetryNotTwice(t *testing.T) {
	progress := bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
	for name, do := range map[string]func(r *bridge.Request){
		"told":  func(r *bridge.Request) { r.Back.Notify(progress) },
		"asked": func(r *bridge.Request) { r.Back.Ask(progress, func(*jsonrpc.Message) {}) },
		"late":  func(*bridge.Request) { time.Sleep(31 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			retried(t, Options{Attempts: 5}, func(t *testing.T, r *Retries) {
				s := &scripted{do: func(_ context.Context, n int, r *bridge.Request) (*jsonrpc.Message, error) {
					do(r)
					return nil, failure(bridge.ErrLost)
				}}
				q, client := requested(t, "resources/read", `{"uri":"a:"}`), &bridgetest.Client{}
				if name == "told" {
					q.Back = client
				}
				if _, err := r.Wrap(s).Call(t.Context(), q); !errors.Is(err, bridge.ErrLost) || s.calls.Load() != 1 || len(client.Got()) == 0 && name == "told" {
					t.Errorf("made %d times: %v", s.calls.Load(), err)
				}
			})
		})
	}
}

// A call is not made again when nobody waits for it any more, or will not.
func TestRetryEnds(t *testing.T) {
	again := func(t *testing.T, r *Retries, ctx context.Context) (int64, error) {
		s := failing(&bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "later", After: 2 * time.Second})
		_, err := r.Wrap(s).Call(ctx, requested(t, "tools/list", `{}`))
		return s.calls.Load(), err
	}
	retried(t, Options{}, func(t *testing.T, r *Retries) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		at := time.Now()
		if n, err := again(t, r, ctx); n != 1 || !errors.Is(err, bridge.ErrUnavailable) || time.Since(at) != 0 {
			t.Errorf("beyond the deadline: made %d times in %v: %v", n, time.Since(at), err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(bridge.ErrCancelled) })
		if n, err := again(t, r, gone); n != 1 || !errors.Is(err, bridge.ErrCancelled) || time.Since(at) != time.Second {
			t.Errorf("cancelled: made %d times in %v: %v", n, time.Since(at), err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the end of the bridge
		life, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		if n, err := again(t, New(Options{}, nil, slog.Default(), life), t.Context()); n != 1 || !errors.Is(err, bridge.ErrShutdown) {
			t.Errorf("closed: made %d times: %v", n, err)
		}
	})
}

// The pauses grow, up to a bound, and are as random as can be.
func TestRetryPauses(t *testing.T) {
	for n, most := range map[int]time.Duration{1: 100, 2: 200, 3: 400, 4: 800, 5: 1600, 6: 2000, 9: 2000} {
		most *= time.Millisecond
		low, high := time.Hour, time.Duration(0)
		for range 2000 {
			pause, ok := pauseFor(t.Context(), failure(bridge.ErrLost), n)
			if !ok {
				t.Fatal("not made again")
			}
			low, high = min(low, pause), max(high, pause)
		}
		if low > most/10 || high > most || high < most*9/10 {
			t.Errorf("after %d failures: %v to %v, want up to %v", n, low, high, most)
		}
	}
}

// A server that fails does not get twice the load: a few calls a second are made
// again, and a tenth of what there was.
func TestRetryBudget(t *testing.T) {
	retried(t, Options{}, func(t *testing.T, r *Retries) {
		s := failing(failure(bridge.ErrLost))
		up := r.Wrap(s)
		var wg sync.WaitGroup
		const n = 500
		for range n {
			wg.Go(func() { _, _ = up.Call(t.Context(), requested(t, "tools/list", `{}`)) })
		}
		wg.Wait()
		if extra := s.calls.Load() - n; extra < n/100 || extra > n/10+2*fewRetries {
			t.Errorf("of %d calls at once %d were made again", n, extra)
		}
		s.calls.Store(0)
		for range 600 { // a minute
			time.Sleep(100 * time.Millisecond)
			wg.Go(func() { _, _ = up.Call(t.Context(), requested(t, "tools/list", `{}`)) })
		}
		wg.Wait()
		if extra, most := s.calls.Load()-600, int64(60*fewRetries+60+maxTenths/10+fewRetries); extra < most/2 || extra > most {
			t.Errorf("of 600 calls in a minute %d were made again, want up to %d", extra, most)
		}
	})
}

// protocol.md D0.8: what may be made again is, and nothing else: not even with
// the option what the server does not promise.
func TestRetryMethods(t *testing.T) {
	tool := func(name string) string { return fmt.Sprintf(`{"name":%q,"arguments":{"task":1}}`, name) }
	for _, test := range []struct {
		method, params string
		o              Options
		want           int64
	}{
		{"tools/list", `{}`, Options{}, 2},
		{"tools/list", `{"cursor":"1"}`, Options{Attempts: 3}, 3},
		{"tools/list", `{}`, Options{Attempts: 1}, 1},
		{"tools/list", `{}`, Options{Off: true}, 1},
		{"prompts/list", `{}`, Options{}, 2},
		{"resources/list", `{}`, Options{}, 2},
		{"resources/templates/list", `{}`, Options{}, 2},
		{"resources/read", `{"uri":"a:"}`, Options{}, 2},
		{"resources/read", `{"uri":"a:","inputResponses":{},"requestState":"s"}`, Options{}, 1},
		{"server/discover", `{}`, Options{}, 2},
		{"ping", `{}`, Options{}, 2},
		{"completion/complete", `{}`, Options{Tools: true}, 1},
		{"prompts/get", `{"name":"x"}`, Options{Tools: true}, 1},
		{"logging/setLevel", `{"level":"info"}`, Options{Tools: true}, 1},
		{"resources/subscribe", `{"uri":"a:"}`, Options{Tools: true}, 1},
		{"tasks/get", `{"taskId":"1"}`, Options{Tools: true}, 1},
		{era.Listen, `{}`, Options{Tools: true}, 1},
		{"x-vendor/read", `{}`, Options{Tools: true}, 1},
		{"tools/call", tool("reads"), Options{}, 1},
		{"tools/call", tool("reads"), Options{Tools: true}, 2},
		{"tools/call", tool("reads"), Options{Tools: true, Attempts: 4}, 4},
		{"tools/call", tool("sets"), Options{Tools: true}, 2},
		{"tools/call", tool("says both"), Options{Tools: true}, 1},
		{"tools/call", tool("sends"), Options{Tools: true}, 1},
		{"tools/call", tool("words"), Options{Tools: true}, 1},
		{"tools/call", tool("silent"), Options{Tools: true}, 1},
		{"tools/call", tool("unknown"), Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","task":{"ttl":1}}`, Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","requestState":"s"}`, Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","Name":"sends"}`, Options{Tools: true}, 1},
	} {
		t.Run(test.method+fmt.Sprintf("%+v", test.o), func(t *testing.T) {
			promised(t, test.o, func(t *testing.T, wrap func(bridge.Upstream) bridge.Upstream) {
				s := failing(failure(bridge.ErrLost))
				if test.method == "tools/call" {
					s.do = func(_ context.Context, _ int, r *bridge.Request) (*jsonrpc.Message, error) {
						if r.Method == "tools/list" {
							return jsonrpc.NewResult(nil, []byte(annotated)), nil
						}
						return nil, failure(bridge.ErrLost)
					}
				}
				up := wrap(s)
				if test.method == "tools/call" {
					if _, err := up.Call(t.Context(), requested(t, "tools/list", `{}`)); err != nil {
						t.Fatal(err)
					}
					s.calls.Store(0)
				}
				at := time.Now()
				if _, err := up.Call(t.Context(), requested(t, test.method, test.params)); !errors.Is(err, bridge.ErrLost) {
					t.Errorf("%v", err)
				}
				if n, took := s.calls.Load(), time.Since(at); n != test.want || took > 2*time.Second {
					t.Errorf("made %d times in %v, want %d", n, took, test.want)
				}
			})
		})
	}
}

// A list in which a tool promises nothing any more takes the promise back.
func TestRetryForgets(t *testing.T) {
	promised(t, Options{Tools: true}, func(t *testing.T, wrap func(bridge.Upstream) bridge.Upstream) {
		list := annotated
		s := &scripted{do: func(_ context.Context, _ int, r *bridge.Request) (*jsonrpc.Message, error) {
			if r.Method == "tools/list" {
				return jsonrpc.NewResult(nil, []byte(list)), nil
			}
			return nil, failure(bridge.ErrLost)
		}}
		up := wrap(s)
		for _, test := range []struct {
			list, cursor string
			want         int64
		}{
			{annotated, `{}`, 2},
			{`{"tools":[{"name":"other","annotations":{"readOnlyHint":true}}]}`, `{"cursor":"2"}`, 2},
			{`{"tools":[{"name":"reads","annotations":{"readOnlyHint":false}}]}`, `{}`, 1},
		} {
			list = test.list
			_, _ = up.Call(t.Context(), requested(t, "tools/list", test.cursor))
			s.calls.Store(0)
			_, _ = up.Call(t.Context(), requested(t, "tools/call", `{"name":"reads"}`))
			if n := s.calls.Load(); n != test.want {
				t.Errorf("after %s: made %d times, want %d", test.list, n, test.want)
			}
			time.Sleep(time.Second) // for the budget
		}
	})
}
