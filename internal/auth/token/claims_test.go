package token

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// Nested claims of strangers must not grow the stack with each level.
func TestNested(t *testing.T) {
	nested := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	if _, err := object([]byte(nested(maxDepth))); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // stacks shrink only then
	for name, text := range map[string]string{"one more": nested(maxDepth + 1), "many": nested(100_000), "1 MiB that is not closed": strings.Repeat("[", 1<<20)} {
		before := stacks()
		_, err := object([]byte(text))
		if err == nil || err.Error() != "it is nested too deeply" {
			t.Errorf("%s: %v", name, err)
		}
		if more := stacks() - before; more > 8<<20 {
			t.Errorf("%s: stacks have grown by %d bytes", name, more)
		}
	}
}

func stacks() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}
