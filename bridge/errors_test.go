package bridge

import "testing"

// A call whose answer was none is told so, and counts as one that was lost: it may
// have been executed.
func TestInvalidIsLost(t *testing.T) {
	err := error(&Error{Server: "fake", Kind: ErrInvalid, Public: "no answer"})
	contains(t, string(answer([]byte("1"), err).Error), `{"bridge":"upstream_invalid"}`)
	if _, again := pauseFor(t.Context(), err, 1); !again {
		t.Error("a call that may be made twice is not made again")
	}
	if got := judge(t.Context(), err); got != fails {
		t.Errorf("for the breaker it is %v, want a failure", got)
	}
	if got := outcomeOf(err); got != Lost {
		t.Errorf("its outcome is %v, want %v", got, Lost)
	}
}
