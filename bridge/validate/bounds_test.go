package validate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is wrong in a hundred thousand places is said in a moment.
func TestManyFaults(t *testing.T) {
	c := NewCache(8)
	var kinds []string
	for i := range 20 {
		kinds = append(kinds, fmt.Sprintf(`{"const":"%d"}`, i))
	}
	schema := `{"properties":{"a":{"items":{"anyOf":[` + strings.Join(kinds, ",") + `]}}}}`
	begin := time.Now()
	_, err := c.Check([]byte(schema), []byte(`{"a":["19"`+strings.Repeat(`,""`, 100_000)+`]}`), true)
	if _, ok := errors.AsType[Faults](err); !ok {
		t.Errorf("%v", err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}
