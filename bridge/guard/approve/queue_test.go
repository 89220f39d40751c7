package approve

import (
	"strconv"
	"testing"
)

// One caller cannot fill the queue.
func TestQueueBounds(t *testing.T) {
	q := NewQueue(nil)
	add := func(n int, principal string) (most int) {
		for range n {
			most = q.add(&waiting{Question: Question{ID: strconv.Itoa(len(q.waiting)), Principal: principal}})
		}
		return most
	}
	for _, step := range []struct {
		n         int
		principal string
		most      int
	}{{maxPerPrincipal, "p", 0}, {1, "p", maxPerPrincipal}, {maxPerPrincipal, "q", 0}, {maxWaiting - 2*maxPerPrincipal, "", 0}, {1, "r", maxWaiting}} {
		if most := add(step.n, step.principal); most != step.most {
			t.Errorf("%d calls of %q: %d, want %d", step.n, step.principal, most, step.most)
		}
	}
}
