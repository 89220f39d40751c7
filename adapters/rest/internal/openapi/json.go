package openapi

import "errors"

// JSON returns a text, which is JSON or YAML as its content has it, as JSON on
// one line of at most limit bytes: in its order, with its numbers as they are
// written, and with the last of several members of one name. It is for texts
// that are no documents: references mean nothing.
func JSON(data []byte, limit int) ([]byte, error) {
	l := &loader{byLoc: map[string]uint16{}, warned: map[string]bool{}, report: func(Warning) {}}
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
