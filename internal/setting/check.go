package setting

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Texts are forms of texts by the names in the tags text and names. Each returns the normal form of a text. Its error
// states only the rule, since the text may be a secret.
type Texts map[string]func(string) (string, error)

// Rule returns why a value is not allowed by the tags of its field, apart from text and names; nil if it is allowed. The
// error states only the rule.
func (f *Field) Rule(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		return f.because(f.word(v.String()))
	case reflect.Int, reflect.Int64:
		return f.because(f.number(v))
	}
	return nil
}

// because adds the reason to a rule.
func (f *Field) because(rule string) error {
	switch {
	case rule == "":
		return nil
	case f.Why != "":
		rule += ": " + f.Why
	}
	return errors.New("must " + rule)
}

// word returns the rule that a text breaks, or "".
func (f *Field) word(s string) string {
	if f.OneOf == nil || slices.Contains(f.OneOf, s) || s == "" && !f.Default.IsValid() {
		return ""
	}
	last := len(f.OneOf) - 1
	if last == 0 {
		return "be " + f.OneOf[0] + ", or left out"
	}
	return "be " + strings.Join(f.OneOf[:last], ", ") + " or " + f.OneOf[last]
}

// number returns the rule that a number breaks, or "".
func (f *Field) number(v reflect.Value) string {
	least := int64(1)
	switch {
	case f.Min != nil:
		least = *f.Min
	case IsSize(v.Type()):
		least = 1 << 10
	}
	show := func(n int64) string { return Show(reflect.ValueOf(n).Convert(v.Type())) }
	switch n := v.Int(); {
	case n >= least && (f.Max == nil || n <= *f.Max), n == 0 && f.Form == "off":
		return ""
	case f.Min != nil && f.Max != nil:
		return "be " + show(least) + " to " + show(*f.Max)
	case n >= least:
		return "be at most " + show(*f.Max)
	case least == 0 || v.Type() == duration && n < 0:
		return "not be negative"
	case v.Type() == duration && f.Min == nil:
		return "be longer than 0"
	}
	return "be at least " + show(least)
}

// Normal returns the normal form of a text of the field, by the tag text.
func (f *Field) Normal(s string, texts Texts) (string, error) {
	if f.Text == "" || s == "" && f.Type.Kind() == reflect.String && !f.Default.IsValid() {
		return s, nil
	}
	return texts[f.Text](s)
}

// Faults returns the faults of the struct to which s points, each of the form "KEY is VALUE: RULE", and those of the
// structs in it, with "KEY: " in front. A struct with a method Validate adds the lines of its error, except s itself.
// Where zero values stand for defaults, they are allowed. In s they do not, nor in a struct with the form "set".
func Faults(s any, texts Texts) []error { return faults(reflect.ValueOf(s).Elem(), true, texts) }

func faults(v reflect.Value, zero bool, texts Texts) (all []error) {
	for _, f := range Fields(v.Type()) {
		if f.Keyed() {
			all = append(all, f.faults(v.FieldByIndex(f.Index), zero, texts)...)
		}
	}
	return all
}

func (f *Field) faults(v reflect.Value, zero bool, texts Texts) (all []error) {
	switch v.Kind() {
	case reflect.Struct:
		all = part(v, f.Form == "set" && !v.IsZero(), texts)
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			all = part(v.Elem(), false, texts)
		}
	case reflect.Slice:
		for i := range v.Len() {
			switch item := v.Index(i); item.Kind() {
			case reflect.String:
				all = append(all, f.fault(item, texts)...)
			case reflect.Struct:
				for _, err := range part(item, false, texts) {
					all = append(all, fmt.Errorf("%s: item %d: %w", f.Key, i+1, err))
				}
			}
		}
		return all
	case reflect.Map:
		all = f.names(v, texts)
	default:
		if zero || !v.IsZero() {
			return f.fault(v, texts)
		}
	}
	for i, err := range all {
		all[i] = fmt.Errorf("%s: %w", f.Key, err)
	}
	return all
}

// names returns the faults of the names in a table.
func (f *Field) names(v reflect.Value, texts Texts) (all []error) {
	if f.Names == "" {
		return nil
	}
	var names []string
	for _, name := range v.MapKeys() {
		names = append(names, name.String())
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := texts[f.Names](name); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// part returns the faults of a struct in another one.
func part(v reflect.Value, zero bool, texts Texts) []error {
	all := faults(v, zero, texts)
	if c, ok := v.Addr().Interface().(interface{ Validate() error }); ok {
		if err := c.Validate(); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				all = append(all, errors.New(line))
			}
		}
	}
	return all
}

// fault returns the fault of a number or a text.
func (f *Field) fault(v reflect.Value, texts Texts) []error {
	err := f.Rule(v)
	if err == nil && v.Kind() == reflect.String {
		_, err = f.Normal(v.String(), texts)
	}
	if err == nil {
		return nil
	}
	shown := Show(v)
	if v.Kind() == reflect.String {
		shown = strconv.Quote(shown)
	}
	return []error{fmt.Errorf("%s is %s: %w", f.Key, shown, err)}
}
