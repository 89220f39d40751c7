package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestDepthIsTheSameForAllSchemas(t *testing.T) {
	nested := func(levels int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`)
	}
	c := NewCache(4)
	for _, schema := range []string{`{}`, `{"type":"object"}`, `{"properties":{"a":{"type":"array"}}}`, `{"minProperties":1}`} {
		if _, err := c.Check([]byte(schema), nested(maxDepth), false); err != nil {
			t.Errorf("%s: %d levels: %v, want no error", schema, maxDepth, err)
		}
		if _, err := c.Check([]byte(schema), nested(maxDepth+1), false); err == nil {
			t.Errorf("%s: %d levels: no error, want one", schema, maxDepth+1)
		}
	}
}

// doubling makes a small schema that checks a member 2^levels times.
func doubling(levels int, last string) []byte {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/$defs/0"}},"$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"%d":%s}}`, levels, last)
	return []byte(b.String())
}

// A schema may scan a long text again and again.
func TestTextsThatAreScannedOftenTakeSteps(t *testing.T) {
	scaletest.Unraced(t)
	long := strings.Repeat("x", 1<<16)
	for name, value := range map[string]string{
		"text":       `"` + long + `"`,
		"name":       `{"` + long + `":1}`,
		"space":      `[` + strings.Repeat(" ", 1<<16) + `]`,
		"digits":     `[` + strings.Repeat("1", 1<<16) + `]`,
		"alternates": `["` + long + `"]`,
	} {
		last := `{}`
		if name == "alternates" {
			last = `{"items":{"anyOf":[` + strings.Repeat(`{"maxLength":1},`, 100) + `{"type":"string"}]}}`
		}
		for _, once := range []bool{true, false} {
			e := &entry{raw: doubling(14, last)}
			e.compile()
			if e.err != nil {
				t.Fatal(e.err)
			}
			args := []byte(`{"a":` + value + `}`)
			if e.fast.fits(args, once) {
				t.Errorf("%s, once %v: fits after %d bytes were scanned 16,384 times, want a doubt", name, once, len(args))
			}
		}
	}
}
