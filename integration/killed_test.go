package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestKilledUnderCall kills a server's process while a call that has no end is on
// its way there. Either the process had it, and the call fails; or it had not,
// and the next process has the call. No call is lost between the two.
func TestKilledUnderCall(t *testing.T) {
	t.Parallel()
	rounds := scaletest.Of(10, 40)
	p := startBridge(t, nil, fakeProgram(t))
	failed, again := 0, 0
	for n := range rounds {
		switch got := killedUnderCall(t, p.base, strconv.Itoa(n)); got {
		case "failed":
			failed++
		case "again":
			again++
		default:
			t.Errorf("call %d: %s", n, got)
		}
	}
	t.Logf("%d calls failed, %d went to the next process", failed, again)
}

func killedUnderCall(t *testing.T, base, name string) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := openSSE(ctx, base)
	if err != nil {
		return err.Error()
	}
	defer r.stream.Close()
	lost := "" // what the call that has no end was answered
	ask := func(tool, message string) (string, bool) {
		if err := r.post(ctx, string(rawCall(tool, map[string]any{"message": message}))); err != nil {
			return err.Error(), false
		}
		for {
			e, err := r.next(ctx)
			if err != nil {
				return err.Error(), false
			}
			if gjson.Get(e, "id").String() == "h" {
				lost = e
				continue
			}
			text := gjson.Get(e, "result.content.0.text")
			return text.String() + gjson.Get(e, "error.message").String(), text.Exists()
		}
	}
	old, ok := ask("pid", "")
	pid, err := strconv.Atoi(old)
	if !ok || err != nil {
		return "pid: " + old
	}
	early := time.Duration(rand.IntN(4000)-2000) * time.Microsecond // the kill, before the call
	var both sync.WaitGroup
	both.Go(func() {
		<-time.After(-early)
		if err := kill(pid); err != nil {
			t.Error(err)
		}
	})
	call := strings.Replace(string(rawCall("hang", map[string]any{"message": name})), `"id":1`, `"id":"h"`, 1)
	<-time.After(early)
	err = r.post(ctx, call)
	both.Wait()
	if err != nil {
		return err.Error()
	}
	if now, ok := eventually(func() (string, bool) { // what is asked in the moment of the loss may be lost too
		now, ok := ask("pid", "")
		return now, ok && now != old
	}); !ok {
		return "no new process: " + now
	}
	var got string
	// The call may be on its way to the new process behind what is asked here.
	_, _ = eventually(func() (struct{}, bool) {
		got, ok = ask("cancelled", name)
		return struct{}{}, !ok || lost != "" || strings.HasPrefix(got, "known=true")
	})
	switch {
	case !ok:
		return "the new process: " + got
	case strings.HasPrefix(got, "known=true") && lost == "":
		return "again"
	case strings.HasPrefix(got, "known=true"):
		return "both: " + lost
	case lost == "":
		if lost, err = r.next(ctx); err != nil {
			return fmt.Sprintf("no answer, and the new process has not got it: %v", err)
		}
	}
	if gjson.Get(lost, "error.data.bridge").String() != "upstream_lost" {
		return lost
	}
	return "failed"
}
