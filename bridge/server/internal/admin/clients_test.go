package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A caller that invents names takes the places of no others, and gets places again after its names are forgotten.
func TestClientsNames(t *testing.T) {
	var c Clients
	now := time.Now()
	call := func(principal, name string) {
		from := &bridge.Caller{Params: fmt.Appendf(nil, `{"clientInfo":{"name":%q,"version":"1"}}`, name)}
		c.Take(&report.Report{Principal: principal, From: from, Call: new(report.Arrival), Request: &jsonrpc.Message{Method: "tools/call"}})
	}
	calls := func(principal string) (names int, unnamed, all uint64) {
		for k, use := range c.look(now) {
			if k.principal != principal {
				continue
			}
			if names++; k.name == Unnamed {
				unnamed = use.Calls
			}
			all += use.Calls
		}
		return names, unnamed, all
	}
	calls("")
	for i := range 3 * maxNames {
		call("rotates", fmt.Sprint("n", i))
	}
	call("rotates", "n0")
	call("other", "a")
	if names, unnamed, all := calls("rotates"); names != maxNames+1 || unnamed != 2*maxNames || all != 3*maxNames+1 {
		t.Errorf("%d names, %d calls without one, %d calls", names, unnamed, all)
	}
	if names, unnamed, all := calls("other"); names != 1 || unnamed != 0 || all != 1 {
		t.Errorf("another caller: %d names, %d calls without one, %d calls", names, unnamed, all)
	}
	for range clientKept + 1 {
		c.Tick(now)
	}
	call("rotates", "late")
	if names, unnamed, _ := calls("rotates"); names != 1 || unnamed != 0 {
		t.Errorf("later: %d names, %d calls without one", names, unnamed)
	}
}
