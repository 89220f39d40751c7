package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Field is an exported field of a struct of settings.
type Field struct {
	reflect.StructField // Index leads to the field from the outermost struct
	// Key is the key in files, "-" or empty for a field that no file has. Form is what follows the key in the tag, such
	// as off.
	Key, Form string
	// Effect, Usually, Why, Text and Names are the tags of these names.
	Effect, Usually, Why, Text, Names string
	// Default is the value of the tag default. It is invalid without this tag.
	Default reflect.Value
	// OneOf are the words that the text may be; nil for any text.
	OneOf []string
	// Shown means that the text is no secret: it is one of some words, or it has a form.
	Shown bool
	// Min and Max are the bounds of a number; nil for none.
	Min, Max *int64
}

// Keyed reports whether the field has a key in files.
func (f *Field) Keyed() bool { return f.Key != "" && f.Key != "-" }

// known holds the fields of structs by type, a map[reflect.Type]*fields. Reflection would copy each field anew.
var known sync.Map

type fields struct {
	all      []*Field
	keys     []string
	byKey    map[string]*Field
	standard bool // some have a default
}

// Fields returns the exported fields of a struct, in their order.
func Fields(t reflect.Type) []*Field { return fieldsOf(t).all }

// ByKey returns the field that has a key, or nil.
func ByKey(t reflect.Type, key string) *Field { return fieldsOf(t).byKey[key] }

// Keys returns the keys of a struct's fields, in their order.
func Keys(t reflect.Type) []string { return fieldsOf(t).keys }

func fieldsOf(t reflect.Type) *fields {
	if f, ok := known.Load(t); ok {
		return f.(*fields)
	}
	f := &fields{byKey: map[string]*Field{}}
	for field := range t.Fields() {
		key, form, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.Anonymous && key == "" && field.Type.Kind() == reflect.Struct {
			for _, one := range Fields(field.Type) {
				inner := *one
				inner.Index = slices.Concat(field.Index, inner.Index)
				f.all = append(f.all, &inner)
			}
		} else if field.IsExported() {
			f.all = append(f.all, read(field, key, form))
		}
	}
	for _, one := range f.all {
		f.standard = f.standard || one.Default.IsValid()
		if one.Keyed() {
			f.keys = append(f.keys, one.Key)
			f.byKey[one.Key] = one
		}
	}
	known.Store(t, f)
	return f
}

// read reads the tags of a field. A tag that does not fit the field is a mistake of the program, and panics.
func read(s reflect.StructField, key, form string) *Field {
	f := &Field{
		StructField: s,
		Key:         key,
		Form:        form,
		Effect:      s.Tag.Get("effect"),
		Usually:     s.Tag.Get("usually"),
		Why:         s.Tag.Get("why"),
		Text:        s.Tag.Get("text"),
		Names:       s.Tag.Get("names"),
	}
	if words := s.Tag.Get("one_of"); words != "" {
		f.OneOf = strings.Fields(words)
	}
	f.Shown = f.OneOf != nil || f.Text != "" || s.Tag.Get("shown") != ""
	if text, ok := s.Tag.Lookup("default"); ok {
		f.Default = parse(s, text)
	}
	bound := func(tag string) *int64 {
		text, ok := s.Tag.Lookup(tag)
		if !ok {
			return nil
		}
		n := parse(s, text).Int()
		return &n
	}
	f.Min, f.Max = bound("min"), bound("max")
	return f
}

var duration = reflect.TypeFor[time.Duration]()

// IsSize reports whether values of a type are numbers of bytes.
func IsSize(t reflect.Type) bool { return t.Kind() == reflect.Int64 && t != duration }

// parse returns the value of a field's tag.
func parse(s reflect.StructField, text string) reflect.Value {
	var value any
	var err error
	switch t := s.Type; {
	case t == duration:
		value, err = time.ParseDuration(text)
	case IsSize(t):
		value, err = ParseSize(text)
	case t.Kind() == reflect.Int:
		value, err = strconv.Atoi(text)
	case t.Kind() == reflect.Bool:
		value, err = strconv.ParseBool(text)
	case t.Kind() == reflect.String:
		value = text
	default:
		err = fmt.Errorf("there are no such tags for %v", t)
	}
	if err != nil {
		panic(fmt.Sprintf("setting: the tag %q of %s: %v", text, s.Name, err))
	}
	return reflect.ValueOf(value).Convert(s.Type)
}

// Show returns a value as files have it: 1m for a minute, 16MiB for a size.
func Show(v reflect.Value) string {
	switch {
	case v.Type() == duration:
		text := time.Duration(v.Int()).String() // such as 1h0m0s
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case IsSize(v.Type()):
		return Size(v.Int()).String()
	}
	return fmt.Sprint(v.Interface())
}
