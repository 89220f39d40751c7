package validate

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// A value with very many faults takes time in proportion: with the square of it, the test
// would not end.
func TestManyFaults(t *testing.T) {
	scaletest.Unraced(t)
	c := NewCache(8)
	var kinds []string
	for i := range 20 {
		kinds = append(kinds, fmt.Sprintf(`{"const":"%d"}`, i))
	}
	schema := `{"properties":{"a":{"items":{"anyOf":[` + strings.Join(kinds, ",") + `]}}}}`
	_, err := c.Check([]byte(schema), []byte(`{"a":["19"`+strings.Repeat(`,""`, scaletest.Of(20_000, 100_000))+`]}`), true)
	if _, ok := errors.AsType[Faults](err); !ok {
		t.Errorf("%v", err)
	}
}

// TestPatternSize: a pattern of a few kilobytes does not take hundreds of megabytes.
func TestPatternSize(t *testing.T) {
	c := NewCache(8)
	var parts []string
	for i := range 20 {
		parts = append(parts, fmt.Sprintf(`"p%d":{"pattern":"%s"}`, i, strings.Repeat("a{1000}", 300)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.Check([]byte(`{"properties":{"q":{"pattern":"^[a-z]{1,900}$"},`+strings.Join(parts, ",")+`}}`), []byte(`{"p0":"a","q":"A"}`), false); err == nil || !strings.Contains(err.Error(), "q: must match") || strings.Contains(err.Error(), "p0") {
		t.Errorf("%.200v", err)
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 64 {
		t.Errorf("%d MB were allocated", n)
	}
}

// TestStepsOfNumbers: exact comparisons of numbers are slow, so they have a limit of their own.
func TestStepsOfNumbers(t *testing.T) {
	scaletest.Unraced(t)
	c := NewCache(8)
	var numbers []string
	for i := range 1000 {
		numbers = append(numbers, fmt.Sprint(i))
	}
	schema := `{"properties":{"a":{"items":{"type":"integer","enum":[` + strings.Join(numbers, ",") + `]}}}}`
	args := func(n int) []byte {
		return []byte(`{"a":[` + strings.TrimSuffix(strings.Repeat("999,", n), ",") + `]}`)
	}
	if _, err := c.Check([]byte(schema), args(scaletest.Alone(100, 500)), false); err != nil {
		t.Error(err)
	}
	texts := []byte(`{"a":[` + strings.TrimSuffix(strings.Repeat(`"999",`, 20_000), ",") + `]}`) // they become numbers
	if _, err := c.Check([]byte(schema), texts, false); err == nil || !strings.Contains(err.Error(), "too many numbers") {
		t.Errorf("texts: %.100v", err)
	}
	_, err := c.Check([]byte(schema), args(20_000), false)
	if _, refused := errors.AsType[Faults](err); !refused {
		t.Error(err)
	}
}
