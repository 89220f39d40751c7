package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// chains is an adapter whose connections note through which wrappers each call of
// a tool has come.
type chains struct {
	bridge.Adapter

	mu  sync.Mutex // guards the rest
	saw []string
}

func (c *chains) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	up, err := c.Adapter.Open(ctx, from, rest)
	if err != nil {
		return nil, err
	}
	return &chainEnd{up, c}, nil
}

// chainEnd is the innermost link: a connection as an adapter opens it.
type chainEnd struct {
	bridge.Upstream
	c *chains
}

// method matches the function of a frame that is the Call of some type of the
// core, such as lane.(*Lane).Call.
var method = regexp.MustCompile(`/bridge/bridge/(?:\w+/)*(?:gateway\.|(\w+\.))\(?\*?(\w+)\)?\.Call$`)

func (c *chainEnd) Call(ctx context.Context, r *bridge.Request) (a *jsonrpc.Message, err error) {
	if r.Method == "tools/call" {
		pcs := make([]uintptr, 200)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
		var links []string
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if m := method.FindStringSubmatch(f.Function); m != nil {
				links = append(links, m[1]+m[2])
			}
		}
		slices.Reverse(links)
		c.c.mu.Lock()
		c.c.saw = append(c.c.saw, strings.Join(links, " > "))
		c.c.mu.Unlock()
	}
	return c.Upstream.Call(ctx, r)
}

// TestChains states the wrappers that a call passes when every option is set, the
// outermost first. Each order is relied on:
//
//   - calls.watched shows a call that is under way, and is told by the report what came of it
//     before that: so it is outermost.
//   - report.reported reports what comes of a call, also refusals. The servers of an
//     aggregate report each for itself.
//   - drain.drained refuses new calls to a server that an operator has drained, which is
//     reported; what the bridge asks by itself passes below it.
//   - metatools.checked holds calls through read_tool and call_tool to the list that the caller
//     gets, so it stands above all that changes the list.
//   - filter.granted is about what the caller may use, and names tools as clients do.
//     filter.filtered renames them, so all below it sees the server's own names.
//   - results.bounded goes by the bounds of the server's own names, so it stands below filter.filtered.
//   - limits.paced counts what clients ask, and not what lift asks for them.
//   - tools.checked asks for lists as they are now, so it stands above cache.Cached.
//   - tools.overridden changes arguments, so checked above it sees what clients see; and the lists in the
//     cache below it are the server's, whatever the operator changes later.
//   - approve.approved asks about the call that the server gets, in the server's era. A call that waits for a person takes
//     no place in the queue of limits.bounded, and has no process of its own.
//   - What cache.Cached has needs no place in the queue of limits.bounded.
//   - The lane opens a connection and calls within spans.
//   - lane.editApplier stands before connections that do not take edits, as that of a program's
//     Adapter: all that changes a message stands above it.
//   - A call that retry makes again keeps its place; and where each call has a
//     process, one that waits has none.
func TestChains(t *testing.T) {
	const (
		refined   = "calls.watched > report.reported > drain.drained > metatools.checked > filter.granted > filter.filtered > "
		session   = refined + "results.bounded > filter.owned > limits.paced > lift.Lift > tools.checked > tools.overridden > approve.approved > "
		visitor   = refined + "results.bounded > limits.paced > stateless.Pool > "
		legacy    = "lower.Translator > tools.checked > tools.overridden > approve.approved > "
		modern    = "tools.checked > tools.overridden > approve.approved > "
		guards    = "cache.Cached > limits.bounded > retry.retrying > lane.Lane > tracing.Tracing > lane.editApplier > breaker.guarded"
		perCall   = "cache.Cached > limits.bounded > share.PerCall > retry.retrying > lane.Lane > tracing.Tracing > lane.editApplier > breaker.guarded"
		viewed    = "share.View > " + guards
		askedLess = "tools.checked > tools.overridden > approve.approved > " + guards // the translator makes a call that may be parked in a goroutine
	)
	for _, tc := range []struct {
		share  Share
		modern bool      // the server
		want   [3]string // of a session, of a stateless client that can be asked nothing, and of one that can
	}{
		{ShareSession, false, [3]string{session + guards, visitor + legacy + guards, askedLess}},
		{ShareSession, true, [3]string{session + guards, visitor + modern + guards, visitor + modern + guards}},
		{SharePrincipal, false, [3]string{session + viewed, visitor + legacy + guards, askedLess}},
		{SharePrincipal, true, [3]string{session + viewed, visitor + modern + guards, visitor + modern + guards}},
		{ShareAll, false, [3]string{session + viewed, visitor + legacy + viewed, visitor + legacy + viewed}},
		{ShareAll, true, [3]string{session + viewed, visitor + modern + viewed, visitor + modern + viewed}},
		{ShareCall, false, [3]string{session + perCall, visitor + legacy + guards, askedLess}},
		{ShareCall, true, [3]string{session + perCall, visitor + modern + guards, visitor + modern + guards}},
	} {
		for server, outer := range map[string][2]string{"fake": {"sitting > ", "gateway > "}, "": {"sitting > aggregate.session > ", "gateway > aggregate.Stateless > aggregate.session > "}} {
			t.Run(fmt.Sprintf("%s/modern=%t/aggregate=%t", tc.share, tc.modern, server == ""), func(t *testing.T) {
				want := []string{outer[0] + tc.want[0], outer[1] + tc.want[1], outer[1] + tc.want[2]}
				if tc.want[2] == askedLess {
					want[2] = askedLess
				}
				if got := chainsOf(t, tc.share, tc.modern, server); !slices.Equal(got, want) {
					t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
				}
			})
		}
	}
}

// chainsOf calls a tool as each kind of client, with every option of the server
// set, and returns what each call has passed. A new option is set here: a wrapper
// that is off is not seen.
func chainsOf(t *testing.T, share Share, modern bool, server string) (saw []string) {
	synctest.Test(t, func(t *testing.T) {
		c := &chains{Adapter: &fake{}}
		if modern {
			c.Adapter = modernShop("one", map[string]string{"tools/list": `{"resultType":"complete","tools":[{"name":"x","inputSchema":{"type":"object"}}],"ttlMs":9,"cacheScope":"public"}`})
		}
		o := ServerOptions{
			Name:    "fake",
			Adapter: c,
			ServerSettings: ServerSettings{
				Share:    share,
				Prefix:   "f__",
				Validate: true,
				Lists:    filter.Lists{Tools: filter.Rules{Rename: map[string]string{"x": "y"}}},
				Limits:   limits.Options{PerPrincipal: 10, Rate: limits.Rate{PerSecond: 100, Burst: 100}},
				Retry:    retry.Options{Tools: true},
				Cache:    cache.Options{Lists: time.Minute},
			},
		}
		other := o
		other.Name, other.Prefix, other.Adapter = "other", "o__", &fake{}
		g := newGateway(Options{
			Servers: []ServerOptions{o, other}, Grants: map[string]filter.Grant{"p": {Allow: []string{"*"}}},
			Watch: func(report.Report) {}, Calls: calls.New(), Log: slog.New(slog.DiscardHandler),
		})
		defer g.Close(context.Background())
		s, no, err := join(t, g, SessionOptions{Server: server, ID: "id", Principal: "p"})
		if err != nil {
			t.Fatalf("%s, %v", no, err)
		}
		tool := "y"
		if server == "" {
			tool = "f__y"
		}
		answers := []string{do(t, s, "1", "tools/call", `{"name":"`+tool+`","arguments":{}}`)}
		for _, caps := range []string{"{}", ableVisitor} {
			answers = append(answers, visitor{server: server, principal: "p", caps: caps}.call(t, g, "tools/call", `"name":"`+tool+`","arguments":{}`))
		}
		for _, a := range answers {
			bridgetest.Contains(t, a, `"result"`)
		}
		saw = c.saw
	})
	return saw
}
