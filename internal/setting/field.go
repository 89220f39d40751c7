package setting

import (
	"reflect"
	"strings"
	"sync"
)

// Field is an exported field of a struct of settings.
type Field struct {
	reflect.StructField        // Index leads to the field from the outermost struct
	Key                 string // "-" or empty for a field that no file has
	Form                string // what follows the key in the tag, such as off
}

// Keyed reports whether the field has a key in files.
func (f *Field) Keyed() bool { return f.Key != "" && f.Key != "-" }

// known holds the results of Fields by type, a map[reflect.Type]*fields. Reflection would copy each field anew.
var known sync.Map

type fields struct {
	all   []Field
	keys  []string
	byKey map[string]*Field
}

// Fields returns the exported fields of a struct, in their order.
func Fields(t reflect.Type) []Field { return fieldsOf(t).all }

// ByKey returns the field that has a key, or nil.
func ByKey(t reflect.Type, key string) *Field { return fieldsOf(t).byKey[key] }

func fieldsOf(t reflect.Type) *fields {
	if f, ok := known.Load(t); ok {
		return f.(*fields)
	}
	f := &fields{byKey: map[string]*Field{}}
	for field := range t.Fields() {
		key, form, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.Anonymous && key == "" && field.Type.Kind() == reflect.Struct {
			for _, inner := range Fields(field.Type) {
				inner.Index = append(append([]int{}, field.Index...), inner.Index...)
				f.all = append(f.all, inner)
			}
		} else if field.IsExported() {
			f.all = append(f.all, Field{field, key, form})
		}
	}
	for i := range f.all {
		if key := f.all[i].Key; f.all[i].Keyed() {
			f.keys = append(f.keys, key)
			f.byKey[key] = &f.all[i]
		}
	}
	known.Store(t, f)
	return f
}

// Keys returns the keys of a struct's fields, in their order.
func Keys(t reflect.Type) []string { return fieldsOf(t).keys }
