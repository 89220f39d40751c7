package stdio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

func TestModernSuite(t *testing.T) {
	adaptertest.RunModernAgain(t, func(t *testing.T) bridge.Adapter { return adapter(t, "modern server", conn.Options{}) })
}

func openModern(t *testing.T, rest bridge.Client) bridge.Upstream {
	t.Helper()
	return adaptertest.OpenModern(t, adapter(t, "modern server", conn.Options{}), rest)
}

// R-143, B5: all subscriptions share the child's output. What belongs to one
// reaches it among other messages, and no other call.
func TestModernSubscriptionsShareTheOutput(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	up := openModern(t, rest)
	const note = `{"jsonrpc":"2.0","method":"notifications/%s","params":{"n":12345678901234567890,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`
	var backs [2]*adaptertest.Client
	var ends [2]<-chan adaptertest.Outcome
	var ids [2]string
	for i := range backs {
		backs[i] = &adaptertest.Client{}
		ends[i] = adaptertest.Go(t.Context(), t, up, backs[i], fmt.Sprintf(`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":{"await":"release-%d","say":[`+note+`]}}`,
			i, "subscriptions/acknowledged", `"$id"`))
		ids[i] = gjson.Get(backs[i].WaitSaid(t, 1)[0], `params._meta.io\.modelcontextprotocol/subscriptionId`).Raw
	}
	updated := fmt.Sprintf(note, "resources/updated", ids[0])
	back := &adaptertest.Client{}
	adaptertest.Call(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[`+updated+`,`+
		fmt.Sprintf(note, "resources/updated", `"x`+ids[1]+`"`)+`,`+fmt.Sprintf(note, "resources/updated", `987654`)+`,`+ // of no call
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+ids[1]+`}}]}}`).Result(t)
	(<-ends[1]).Result(t) // the server has taken it back, and need not answer it
	if got := backs[0].Said(); len(got) != 2 || got[1] != updated {
		t.Errorf("the subscription was told %q, want %q at last", got, updated)
	}
	if got := slices.Concat(backs[1].Said()[1:], back.Said(), rest.Said()); len(got) > 0 {
		t.Errorf("others were told %q", got)
	}
	for i := range ends {
		adaptertest.Notify(t, up, fmt.Sprintf(`{"jsonrpc":"2.0","method":"release-%d"}`, i))
	}
	(<-ends[0]).Result(t)
}

// B12: log messages carry no sign of whose they are. They go to the only call
// that wants any, and to none when there are two.
func TestModernLogs(t *testing.T) {
	quiet(t)
	rest, back, other := &adaptertest.Client{}, &adaptertest.Client{}, &adaptertest.Client{}
	up := openModern(t, rest)
	const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.50}}`
	const logging = `"_meta":{"io.modelcontextprotocol/logLevel":"debug"}`
	ask := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + logging + `,"say":[` + line + `,` + line + `]}}`
	waits := adaptertest.Go(t.Context(), t, up, other, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"await":"release-1"}}`) // wants none
	adaptertest.Call(t.Context(), t, up, back, ask).Result(t)
	if got := back.Said(); !slices.Equal(got, []string{line, line}) {
		t.Errorf("the call was told %q, want its log messages", got)
	}
	logs := adaptertest.Go(t.Context(), t, up, other, `{"jsonrpc":"2.0","id":1,"method":"m","params":{`+logging+`,"await":"release-2","say":[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug"}}]}}`)
	other.WaitSaid(t, 1) // it is in flight
	adaptertest.Call(t.Context(), t, up, back, ask).Result(t)
	if got := slices.Concat(back.Said()[2:], other.Said()[1:], rest.Said()); len(got) > 0 {
		t.Errorf("log messages of one of two calls reached %q", got)
	}
	for i, c := range []<-chan adaptertest.Outcome{waits, logs} {
		adaptertest.Notify(t, up, fmt.Sprintf(`{"jsonrpc":"2.0","method":"release-%d"}`, i+1))
		(<-c).Result(t)
	}
}

// B5, B11: what is given up is taken back by the number that the server knows,
// and later messages about it are dropped. The same holds for subscriptions.
func TestModernCancel(t *testing.T) {
	quiet(t)
	up := openModern(t, &adaptertest.Client{})
	why := errors.New("changed my mind")
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		back := &adaptertest.Client{}
		ctx, stop := context.WithCancelCause(t.Context())
		say := `{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"$id"}}}`
		given := adaptertest.Go(ctx, t, up, back, `{"jsonrpc":"2.0","id":"mine","method":"`+method+`","params":{"then":"hang","say":[`+say+`]}}`)
		id := gjson.Get(back.WaitSaid(t, 1)[0], `params._meta.io\.modelcontextprotocol/subscriptionId`).Raw
		stop(why)
		if o := <-given; !errors.Is(o.Err, why) {
			t.Errorf("%s ended with %q, %v, want %v", method, o.Answer, o.Err, why)
		}
		adaptertest.WaitServer(t, up, `"requestId":`+id+`}`)
		late := strings.ReplaceAll(say, `"$id"`, id) + `,{"jsonrpc":"2.0","id":` + id + `,"result":{"late":1}}`
		if got := call(t, up, `{"say":[`+late+`],"result":{"mine":1}}`).Result(t); got != `{"mine":1}` {
			t.Errorf("another call got %s", got)
		}
		if got := back.Said(); len(got) != 1 {
			t.Errorf("%s was told after its end: %q", method, got[1:])
		}
	}
}
