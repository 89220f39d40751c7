package setting

import "reflect"

// Fill sets the fields of the struct to which s points that are zero and have a default to the default. It leaves the
// structs in it alone, apart from embedded ones.
func Fill(s any) {
	v := reflect.ValueOf(s).Elem()
	for _, f := range Fields(v.Type()) {
		if f.Default.IsValid() {
			if at := v.FieldByIndex(f.Index); at.IsZero() {
				at.Set(f.Default)
			}
		}
	}
}

// Standard returns the values that zero values in settings of type t stand for. ok is false if zero values mean zero.
func Standard(t reflect.Type) (v reflect.Value, ok bool) {
	s := reflect.New(t)
	Fill(s.Interface())
	return s.Elem(), fieldsOf(t).standard
}
