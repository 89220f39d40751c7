package filter

import (
	"fmt"
	"testing"
)

// However many tasks one principal makes, those of others stay theirs; what is
// forgotten is its own, the oldest first.
func TestTasksFlood(t *testing.T) {
	o := NewTasks()
	for i := range 3 {
		o.note("quiet", fmt.Sprint(i))
	}
	for i := range 2 * maxTasks {
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
	last := 2*maxTasks - 1
	if oldest := last - (maxTasks - 3) + 1; !o.has("loud", fmt.Sprint(last)) || !o.has("loud", fmt.Sprint(oldest)) || o.has("loud", fmt.Sprint(oldest-1)) {
		t.Error("other tasks are kept than the latest")
	}
	if o.n != maxTasks {
		t.Errorf("%d tasks are kept, want %d", o.n, maxTasks)
	}
	// Where many have some each, nobody is left with nothing.
	for i := range 2 * maxTasks {
		o.note(fmt.Sprint("p", i%100), fmt.Sprint(i))
	}
	for i := range 100 {
		if p := fmt.Sprint("p", i); o.all[p].Len() < maxTasks/102 {
			t.Errorf("%s has %d tasks", p, o.all[p].Len())
		}
	}
	if o.n != maxTasks || !o.has("quiet", "0") {
		t.Errorf("%d tasks are kept", o.n)
	}
}
