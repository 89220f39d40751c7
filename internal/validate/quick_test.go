package validate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// quickSchemas use every keyword that the quick check knows, and some that it does not.
var quickSchemas = []string{
	`{}`, `true`,
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["integer","null"]}},"required":["a"],"additionalProperties":false}`,
	`{"type":"object","required":["a","z"],"additionalProperties":{"type":"number"}}`,
	`{"properties":{"a":{"type":"array","items":{"$ref":"#/$defs/x"},"minItems":1,"maxItems":2}},"$defs":{"x":{"type":["object","null"],"properties":{"a":{"$ref":"#/$defs/x"},"b":{"type":"boolean"}}}}}`,
	`{"properties":{"a":{"type":"string","minLength":2,"maxLength":3,"pattern":"^[a-zé]+$"},"b":{"enum":["a","b",1]}}}`,
	`{"properties":{"a":{"type":"number","minimum":1,"exclusiveMaximum":5},"b":{"type":"integer","maximum":3,"exclusiveMinimum":-1}}}`,
	`{"allOf":[{"properties":{"a":{"type":"string"}}},{"required":["b"]}],"anyOf":[{"properties":{"b":{"type":"integer"}}},{"properties":{"b":{"type":"null"}}}]}`,
	`{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"properties":{"a":{"not":{"type":"string"}}}}`, `{"properties":{"a":false}}`,
	`{"$defs":{"x":{"$ref":"#/$defs/x"}},"properties":{"a":{"$ref":"#/$defs/x"}}}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/x","type":"string"}},"x":{}}`,
	`{"properties":{"a\\\\b":{"type":"string"}}}`,
	`{"properties":{"a":{"$ref":"#/$defs/x"},"b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/x"}]},"z":{"allOf":[{"$ref":"#/$defs/x"},{"required":["a"]}]}},"$defs":{"x":{"type":["integer","object"]}}}`,
}

// randomValue writes JSON that sometimes fits the schemas.
func randomValue(r *rand.Rand, deep int) string {
	scalars := []string{`"a"`, `"ab"`, `"éé"`, `"abcd"`, `"a\u0062"`, `1`, `1.0`, `2.5`, `-0`, `5`, `1e3`, `1e9999`, `12345678901234567890123456789012345`, `true`, `null`, `"A"`}
	space := func() string { return []string{"", "", " ", "\n\t"}[r.IntN(4)] }
	switch n := r.IntN(10); {
	case deep > 0 && n < 4:
		var members []string
		for range r.IntN(4) {
			members = append(members, space()+`"`+[]string{"a", "b", "z", "a", `\u0061`}[r.IntN(5)]+`"`+space()+":"+space()+randomValue(r, deep-1))
		}
		return "{" + strings.Join(members, ",") + space() + "}"
	case deep > 0 && n < 6:
		var items []string
		for range r.IntN(4) {
			items = append(items, randomValue(r, deep-1)+space())
		}
		return "[" + space() + strings.Join(items, ","+space()) + "]"
	}
	return scalars[r.IntN(len(scalars))]
}

// agree checks that whatever passes the quick check passes the validator too.
func agree(t *testing.T, schema, value string) (quickly bool) {
	t.Helper()
	c := NewCache(1)
	e := c.entry([]byte(schema))
	if e.once.Do(e.compile); e.err != nil {
		return false
	}
	for _, once := range []bool{true, false} {
		if !e.fast.fits([]byte(value), once) {
			continue
		}
		quickly = true
		v, fault := decode([]byte(value), !once)
		if fault != nil && !once && strings.Contains(fault.Text, "too many digits") { // where the schema says nothing
			continue
		}
		if fault != nil {
			t.Fatalf("%s passes %s (once: %v), but %s", schema, value, once, fault.Text)
		}
		if err := e.validate(v, len(value)); err != nil {
			t.Fatalf("%s passes %s (once: %v), but %v", schema, value, once, err)
		}
	}
	return quickly
}

func TestQuick(t *testing.T) {
	scaletest.Unraced(t)
	r := rand.New(rand.NewPCG(1, 2))
	passed := 0
	for range 300 {
		value := randomValue(r, 3)
		for _, schema := range quickSchemas {
			if agree(t, schema, value) {
				passed++
			}
		}
	}
	if passed < 300 {
		t.Errorf("%d values passed", passed)
	}
	for _, tc := range []struct {
		schema, value string
		once, want    bool
	}{
		{quickSchemas[2], ` {"a":"x", "b":null}`, true, true},
		{quickSchemas[2], `{"a":"x","a":"y"}`, true, false},
		{quickSchemas[2], `{"a":"x","a":"y"}`, false, true},
		{quickSchemas[2], `{"a":"x","c":1}`, true, false},
		{quickSchemas[3], `{"a":1,"z":2}`, true, true},
		{quickSchemas[3], `{"a":1,"y":2}`, true, false},
		{quickSchemas[4], `{"a":[{"a":null,"b":true},null],"z":{"y":[1,2]}}`, true, true},
		{quickSchemas[5], `{"a":"éé","b":"b"}`, true, true},
		{quickSchemas[6], `{"a":4.99,"b":0}`, true, true},
		{quickSchemas[6], `{"a":5}`, true, false},
		{quickSchemas[7], `{"a":"x","b":null}`, true, true},
		{quickSchemas[14], `{"a":1,"b":null,"z":{"a":[1]}}`, true, true},
		{quickSchemas[14], `{"a":{"y":[]},"b":2,"z":{"a":{}}}`, true, true},
		{quickSchemas[14], `{"a":"x"}`, true, false},
		{quickSchemas[14], `{"b":"x"}`, true, false},
		{quickSchemas[14], `{"z":{"b":1}}`, true, false},
		{quickSchemas[14], `{"z":[]}`, true, false},
		{quickSchemas[14], `{"a":{"y":1,"y":2}}`, true, false},
		{quickSchemas[14], `{"a":{"y":1 2}}`, false, false},
		{`{}`, `{"z":1,"z":2}`, true, false},
		{`{}`, `{"z":1}x`, true, false},
		{`{}`, strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2), false, false},
	} {
		e := NewCache(1).entry([]byte(tc.schema))
		e.compile()
		if got := e.fast.fits([]byte(tc.value), tc.once); got != tc.want {
			t.Errorf("quick check of %s with %s (once: %v) = %v, want %v", tc.value, tc.schema, tc.once, got, tc.want)
		}
	}
}

func FuzzQuick(f *testing.F) {
	for _, schema := range quickSchemas {
		f.Add(schema, `{"a":"x","b":1,"z":[{"a":null}]}`)
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		if len(schema) < 2000 && len(value) < 2000 {
			agree(t, schema, value)
		}
	})
}

// TestFitsTwice: of members of the same name the last counts.
func TestFitsTwice(t *testing.T) {
	c := NewCache(1)
	schema := []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)
	for value, want := range map[string]bool{`{"a":1,"a":2}`: true, `{"a":"x","a":2}`: true, `{"a":2,"a":"x"}`: false} {
		if got, err := c.Fits(schema, []byte(value)); got != want || err != nil {
			t.Errorf("Fits(%s) = %v, %v, want %v", value, got, err, want)
		}
	}
}

// largeArguments is about 1 MB: many objects, or one text.
func largeArguments(text bool) []byte {
	if text {
		return []byte(`{"text":"` + strings.Repeat("The quick brown fox.\\n", 48000) + `"}`)
	}
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := range 16000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"item number %d","tags":["a","b"],"open":true}`, i, i)
	}
	return append([]byte(b.String()), "]}"...)
}

// BenchmarkCheckLarge measures a check of 1 MB of arguments, relative to json.Valid.
func BenchmarkCheckLarge(b *testing.B) {
	schema := []byte(`{"type":"object","properties":{"text":{"type":"string"},"items":{"type":"array","items":{"$ref":"#/$defs/item"}}},"additionalProperties":false,` +
		`"$defs":{"item":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},"open":{"type":"boolean"}},"required":["id"]}}}`)
	for name, args := range map[string][]byte{"text": largeArguments(true), "objects": largeArguments(false)} {
		b.Run(name, func(b *testing.B) {
			c := NewCache(1)
			b.SetBytes(int64(len(args)))
			b.ReportAllocs()
			begin := time.Now()
			for range 10 {
				json.Valid(args)
			}
			valid := time.Since(begin) / 10
			for b.Loop() {
				if got, err := c.Check(schema, args, true); err != nil || &got[0] != &args[0] {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(valid), "×valid")
		})
	}
}
