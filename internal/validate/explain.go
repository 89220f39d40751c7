package validate

import (
	"cmp"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/tidwall/gjson"
)

// explainer explains the validator's errors in words.
type explainer struct {
	schema []byte
	value  any
}

// finding is a fault, with the details that decide between alternatives.
type finding struct {
	Fault
	path  []string
	types []string // the types that the value may have
	enum  []any    // the values of the enum for the value
	may   []any    // the values of enum, or the constant for the value
	fixed bool     // a constant differs, which distinguishes alternatives
}

// maxFindings bounds the examined faults. No reader needs more.
const maxFindings = 1000

func (e *explainer) faults(wrong *jsonschema.ValidationError) Faults {
	var out Faults
	seen := map[Fault]bool{}
	for _, f := range e.findings(wrong) {
		if !seen[f.Fault] {
			seen[f.Fault] = true
			out = append(out, f.Fault)
		}
	}
	// The validator visits the members of objects in random order.
	slices.SortStableFunc(out, func(f, b Fault) int { return strings.Compare(f.Path, b.Path) })
	return out
}

func (e *explainer) findings(w *jsonschema.ValidationError) []finding {
	switch k := w.ErrorKind.(type) {
	case *kind.AnyOf:
		return e.alternatives(w)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			return e.alternatives(w)
		}
		return []finding{e.at(w, "fits several of the alternatives where only one may: say more exactly which is meant")}
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		var all []finding
		for _, cause := range w.Causes {
			if len(all) >= maxFindings {
				break
			}
			all = append(all, e.findings(cause)...)
		}
		if len(all) == 0 {
			all = []finding{e.at(w, "is not as the schema says")}
		}
		return all
	case *kind.Required:
		return e.missing(w, k.Missing, "is missing")
	case *kind.DependentRequired:
		return e.missing(w, k.Missing, "is missing: it is needed with "+k.Prop)
	case *kind.Dependency:
		return e.missing(w, k.Missing, "is missing: it is needed with "+k.Prop)
	case *kind.AdditionalProperties:
		names := known(e.schemaAt(w.SchemaURL))
		var all []finding
		for _, name := range k.Properties {
			all = append(all, e.below(w, name, unknown(name, names)))
		}
		return all
	case *kind.Type:
		f := e.at(w, "must be "+types(k.Want)+", not "+show(at(e.value, w.InstanceLocation)))
		f.types = k.Want
		return []finding{f}
	case *kind.Enum:
		f := e.at(w, "must be "+oneOf(k.Want)+", not "+show(at(e.value, w.InstanceLocation)))
		f.enum, f.may = k.Want, k.Want
		return []finding{f}
	case *kind.Const:
		f := e.at(w, "must be "+show(k.Want)+", not "+show(at(e.value, w.InstanceLocation)))
		f.fixed, f.may = true, []any{k.Want}
		return []finding{f}
	}
	return []finding{e.at(w, e.describe(w))}
}

// at returns a finding about the value.
func (e *explainer) at(w *jsonschema.ValidationError, text string) finding {
	return finding{Fault: Fault{Path: pathOf(w.InstanceLocation, e.value), Text: text}, path: w.InstanceLocation}
}

// below returns a finding about a member of the value.
func (e *explainer) below(w *jsonschema.ValidationError, name, text string) finding {
	place := append(slices.Clip(w.InstanceLocation), name)
	return finding{Fault: Fault{Path: pathOf(place, e.value), Text: text}, path: place}
}

func (e *explainer) missing(w *jsonschema.ValidationError, names []string, text string) []finding {
	var all []finding
	for _, name := range names {
		all = append(all, e.below(w, name, text))
	}
	return all
}

// describe describes faults of the other keywords.
func (e *explainer) describe(w *jsonschema.ValidationError) string {
	switch k := w.ErrorKind.(type) {
	case *kind.FalseSchema:
		return "must not be given"
	case *kind.Not:
		return "is what the schema excludes"
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %s, not %d", count(k.Want, "character"), k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %s, not %d", count(k.Want, "character"), k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %s, not %d", count(k.Want, "item"), k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %s, not %d", count(k.Want, "item"), k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %s, not %d", count(k.Want, "member"), k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %s, not %d", count(k.Want, "member"), k.Got)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %s too many", count(k.Count, "item"))
	case *kind.UniqueItems:
		return fmt.Sprintf("must not have an item twice: those at %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains, *kind.MinContains:
		return "has not the items that it must have"
	case *kind.MaxContains:
		return "has too many items of a kind"
	case *kind.PropertyNames:
		return "must not have a member called " + quote(k.Property)
	case *kind.Pattern:
		return "must match the pattern " + k.Want + ", which " + quote(k.Got) + " does not"
	case *kind.Minimum:
		return "must be at least " + rat(k.Want) + ", not " + show(at(e.value, w.InstanceLocation))
	case *kind.Maximum:
		return "must be at most " + rat(k.Want) + ", not " + show(at(e.value, w.InstanceLocation))
	case *kind.ExclusiveMinimum:
		return "must be more than " + rat(k.Want) + ", not " + show(at(e.value, w.InstanceLocation))
	case *kind.ExclusiveMaximum:
		return "must be less than " + rat(k.Want) + ", not " + show(at(e.value, w.InstanceLocation))
	case *kind.MultipleOf:
		return "must be a multiple of " + rat(k.Want) + ", not " + show(at(e.value, w.InstanceLocation))
	}
	return "is not as the schema says"
}

// alternatives explains why no alternative fits, with the faults of the alternative that was probably meant.
func (e *explainer) alternatives(w *jsonschema.ValidationError) []finding {
	var wants []string
	var enum []any
	var near [][]finding
	for _, cause := range w.Causes {
		found := e.findings(cause)
		own := len(found) > 0 && slices.Equal(found[0].path, w.InstanceLocation)
		switch {
		case own && found[0].types != nil:
			for _, name := range found[0].types {
				if !slices.Contains(wants, name) {
					wants = append(wants, name)
				}
			}
		case own && found[0].enum != nil:
			enum = append(enum, found[0].enum...)
		default:
			near = append(near, found)
		}
	}
	if f, ok := e.tag(near); ok {
		return []finding{f}
	}
	if len(near) > 0 {
		best := slices.MinFunc(near, func(a, b []finding) int { return distance(a) - distance(b) })
		if len(near) > 1 && distance(best) >= distant {
			return []finding{e.at(w, fmt.Sprintf("fits none of the %d alternatives; of the nearest: %s: %s", len(w.Causes), cmp.Or(best[0].Path, "the whole"), best[0].Text))}
		}
		return best
	}
	var may []string
	if len(wants) > 0 {
		may = append(may, types(wants))
	}
	if len(enum) > 0 {
		may = append(may, oneOf(enum))
	}
	if len(may) == 0 {
		return []finding{e.at(w, "fits none of the alternatives")}
	}
	f := e.at(w, "must be "+strings.Join(may, " or ")+", not "+show(at(e.value, w.InstanceLocation)))
	f.types, f.enum = wants, enum
	return []finding{f}
}

// tag returns the finding that the value of a member fits none of the alternatives. This is usually the member that
// distinguishes the alternatives.
func (e *explainer) tag(near [][]finding) (finding, bool) {
	if len(near) < 2 {
		return finding{}, false
	}
	for _, f := range near[0] {
		var may []any
		for _, found := range near {
			i := slices.IndexFunc(found, func(other finding) bool { return other.may != nil && slices.Equal(other.path, f.path) })
			if i < 0 {
				may = nil
				break
			}
			may = append(may, found[i].may...)
		}
		if may != nil {
			f.Text = "must be " + oneOf(may) + ", not " + show(at(e.value, f.path))
			f.enum, f.may = may, may
			return f, true
		}
	}
	return finding{}, false
}

// distant is the distance for a constant that differs.
const distant = 1000

// distance returns how far a value is from an alternative.
func distance(found []finding) int {
	n := len(found)
	for _, f := range found {
		if f.fixed {
			n += distant
		}
	}
	return n
}

// schemaAt returns the part of the schema at a location.
func (e *explainer) schemaAt(location string) gjson.Result {
	r := gjson.ParseBytes(e.schema)
	_, pointer, _ := strings.Cut(location, "#")
	if p, err := url.PathUnescape(pointer); err == nil {
		pointer = p
	}
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if step == "" {
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		r = r.Get(gjson.Escape(step))
	}
	return r
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// rat formats a number of a schema.
func rat(r *big.Rat) string {
	if r == nil {
		return "allowed"
	}
	if r.IsInt() {
		if s := r.Num().String(); len(s) <= maxShown {
			return s
		}
	}
	if f, exact := r.Float64(); exact || f != 0 {
		return fmt.Sprint(f)
	}
	return r.RatString()
}

var articles = map[string]string{
	"string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
	"array": "an array", "object": "an object", "null": "null",
}

// types writes types in words.
func types(names []string) string {
	var out []string
	for _, n := range names {
		if a, ok := articles[n]; ok {
			n = a
		}
		out = append(out, n)
	}
	return strings.Join(out, " or ")
}

// maxAllowed bounds the allowed values that a message lists.
const maxAllowed = 50

// oneOf formats allowed values.
func oneOf(values []any) string {
	var out []string
	for i, v := range values {
		if i == maxAllowed {
			out = append(out, fmt.Sprintf("… (%d in all)", len(values)))
			break
		}
		out = append(out, show(v))
	}
	if len(out) == 1 {
		return out[0]
	}
	return "one of " + strings.Join(out, ", ")
}
