package validate

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// How many times schemas may be applied to values in one check: a number, and
// more for each byte of the whole value. Alternatives within alternatives can
// make it grow without bounds, and the validator cannot be interrupted.
const (
	maxSteps  = 50_000
	byteSteps = 4
)

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
	for _, one := range s.Properties {
		out = append(out, one)
	}
	for _, one := range s.PatternProperties {
		out = append(out, one)
	}
	for _, one := range s.DependentSchemas {
		out = append(out, one)
	}
	loose := []any{s.AdditionalProperties, s.Items, s.AdditionalItems}
	for _, one := range s.Dependencies {
		loose = append(loose, one)
	}
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
