package gateway

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// A server that does not take one request works: what one client sends says
// nothing about others. That our credentials are refused is for the operator to
// see.
func TestDeclinedWorks(t *testing.T) {
	for _, test := range []struct {
		kind  error
		works bool
	}{{bridge.ErrRejected, true}, {bridge.ErrCredentials, false}, {bridge.ErrUnavailable, false}} {
		f := newFaulty(always(failure(test.kind)))
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
			s, _ := begin(t, b, "")
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			if st := state(b); st.Usable != test.works || (st.State == "ready") != test.works || (st.Failures == 0) != test.works {
				t.Errorf("after %v: %+v", test.kind, st)
			}
			f.outcome = nil
			do(t, s, "1", "tools/call", `{"name":"x"}`)
			if st := state(b); !st.Usable || st.State != "ready" {
				t.Errorf("after an answer: %+v", st)
			}
		})
	}
}
