package gateway

import (
	"fmt"
	"testing"
)

// However many tasks one principal makes, those of others stay theirs; what is
// forgotten is its own, the oldest first.
func TestOwnersFlood(t *testing.T) {
	o := newOwners(&route{b: &Gateway{grants: map[string]Grant{}}})
	for i := range 3 {
		o.note("quiet", fmt.Sprint(i))
	}
	for i := range 2 * maxOwned {
		o.note("loud", fmt.Sprint(i))
		o.note("loud", fmt.Sprint(i)) // which is no other task
	}
	for i := range 3 {
		if !o.has("quiet", fmt.Sprint(i)) {
			t.Errorf("the task %d of another principal is forgotten", i)
		}
	}
	if o.has("quiet", "5") || o.has("nobody", "0") {
		t.Error("a task is everybody's")
	}
	last := 2*maxOwned - 1
	if oldest := last - (maxOwned - 3) + 1; !o.has("loud", fmt.Sprint(last)) || !o.has("loud", fmt.Sprint(oldest)) || o.has("loud", fmt.Sprint(oldest-1)) {
		t.Error("other tasks are kept than the latest")
	}
	if o.n != maxOwned {
		t.Errorf("%d tasks are kept, want %d", o.n, maxOwned)
	}
	// Where many have some each, nobody is left with nothing.
	for i := range 2 * maxOwned {
		o.note(fmt.Sprint("p", i%100), fmt.Sprint(i))
	}
	for i := range 100 {
		if p := fmt.Sprint("p", i); o.all[p].Len() < maxOwned/102 {
			t.Errorf("%s has %d tasks", p, o.all[p].Len())
		}
	}
	if o.n != maxOwned || !o.has("quiet", "0") {
		t.Errorf("%d tasks are kept", o.n)
	}
}
