package gateway

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// A call whose answer was none is told so, and counts as one that was lost: it may
// have been executed. For the breaker it is a failure: see TestInvalidFails.
func TestInvalidIsLost(t *testing.T) {
	err := error(&bridge.Error{Server: "fake", Kind: bridge.ErrInvalid, Public: "no answer"})
	bridgetest.Contains(t, string(Refusal([]byte("1"), err).Error), `{"bridge":"upstream_invalid"}`)
	if got := bridge.OutcomeOf(err); got != bridge.Lost {
		t.Errorf("its outcome is %v, want %v", got, bridge.Lost)
	}
}
