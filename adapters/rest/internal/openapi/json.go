package openapi

import "errors"

// JSON returns a JSON or YAML text as JSON on one line of at most limit bytes. It keeps the order and
// the digits of numbers, and the last of several members with the same name. It resolves no
// references.
func JSON(data []byte, limit int) ([]byte, error) {
	l := &loader{
		byLoc:  map[string]uint16{},
		warned: map[string]bool{},
		report: func(Warning) {},
	}
	f, err := l.parse("", data)
	if err != nil {
		return nil, err
	}
	out, ok := f.root.AppendJSON(nil, limit)
	if !ok {
		return nil, errors.New("is too large")
	}
	return out, nil
}
