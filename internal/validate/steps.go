package validate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A step applies a schema to a value. One check may take maxSteps steps, plus byteSteps for each byte of the value. The
// steps are bounded because nested alternatives multiply them and the validator cannot be interrupted.
const (
	maxSteps  = 50_000
	byteSteps = 4
)

// maxCompared bounds the comparisons of numbers with those of enums in one check. Exact comparisons take microseconds,
// and unequal numbers do not count as steps.
const maxCompared = 1_000_000

var errCompared = errors.New("too many numbers to be checked")

// tooManyNumbers reports whether v has too many numbers to compare with those of the enums.
func (e *entry) tooManyNumbers(v any) bool {
	return e.numbers > 0 && numbersIn(v) > max(maxCompared/e.numbers, 100)
}

func numbersIn(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			n += numbersIn(one)
		}
	case []any:
		for _, one := range v {
			n += numbersIn(one)
		}
	case json.Number:
		n = 1
	}
	return n
}

// errSteps is the panic of a check that takes too many steps.
var errSteps = errors.New("too many alternatives have to be tried")

// countSteps makes every reachable schema count the values to which it is applied. It uses the hook for formats.
// Formats themselves are not checked, because the dates and URIs of servers differ too much from the validator's rules.
func (e *entry) countSteps() {
	step := &jsonschema.Format{Name: "step", Validate: func(any) error {
		if e.steps--; e.steps < 0 {
			panic(errSteps)
		}
		return nil
	}}
	seen := map[*jsonschema.Schema]bool{}
	todo := []*jsonschema.Schema{e.s}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s == nil || seen[s] {
			continue
		}
		seen[s] = true
		s.Format = step
		if s.Enum != nil {
			for _, one := range s.Enum.Values {
				if _, ok := asNumber(one); ok {
					e.numbers++
				}
			}
		}
		todo = append(todo, parts(s)...)
	}
}

// parts returns the schemas to which a schema refers. Some may be nil.
func parts(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		out = append(out, list...)
	}
	out = slices.AppendSeq(out, maps.Values(s.Properties))
	out = slices.AppendSeq(out, maps.Values(s.PatternProperties))
	out = slices.AppendSeq(out, maps.Values(s.DependentSchemas))
	loose := slices.AppendSeq([]any{s.AdditionalProperties, s.Items, s.AdditionalItems}, maps.Values(s.Dependencies))
	for _, one := range loose {
		switch one := one.(type) {
		case *jsonschema.Schema:
			out = append(out, one)
		case []*jsonschema.Schema:
			out = append(out, one...)
		}
	}
	return out
}
