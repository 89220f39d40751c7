package gateway

import (
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// The calls of a principal end in any order.
func TestCalls(t *testing.T) {
	p := &principals{}
	stopped := 0
	stop := func(err error) {
		if stopped++; !errors.Is(err, bridge.ErrRevoked) {
			t.Error(err)
		}
	}
	all := make([]*principalCall, 5)
	for i := range all {
		all[i] = &principalCall{}
		if err := p.Enter(all[i], "p", stop); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{4, 2, 0} { // the newest, one between, the oldest
		p.Leave(all[i], "p")
	}
	if n := p.Revoke("q"); n != 0 || stopped != 0 {
		t.Errorf("%d calls of another were stopped", stopped)
	}
	if n := p.Revoke("p"); n != 2 || stopped != 2 {
		t.Errorf("%d calls were stopped, want 2", stopped)
	}
	p.Leave(all[1], "p")
	p.Leave(all[3], "p")
	if len(p.calls) != 0 || p.Enter(all[0], "p", stop) == nil {
		t.Errorf("left: %v", p.calls)
	}
}
