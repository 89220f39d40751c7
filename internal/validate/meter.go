package validate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// How many times schemas may be applied to values in one check: a number, and
// more for each byte of the whole value. Alternatives within alternatives can
// make it grow without bounds, and the validator cannot be interrupted.
const (
	maxSteps  = 50_000
	byteSteps = 4
)

// maxCompared is how often numbers may be compared with those of enums in one
// check: that is exact, so it takes microseconds, and is not counted as steps
// when the numbers differ.
const maxCompared = 1_000_000

var errCompared = errors.New("too many numbers to be checked")

// compares reports whether numbers within v and those of enums are too many to
// be compared with each other.
func (e *entry) compares(v any) bool {
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

// errSteps is what a check panics with that takes too many.
var errSteps = errors.New("too many alternatives have to be tried")

// meter has every schema that can be reached count the values that it is applied
// to, in the place where formats are checked: these are not, since what servers
// call a date or a URI differs too much from what the validator does.
func (e *entry) meter() {
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

// parts returns the schemas that a schema leads to; nil among them are none.
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
