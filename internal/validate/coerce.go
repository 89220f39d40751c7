package validate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/tidwall/gjson"
)

// edits are corrected values, as JSON by path.
type edits struct {
	at    map[string]string
	texts func(name string) bool // as in corrections
}

func key(place []string) string {
	var b strings.Builder
	for _, step := range place {
		b.WriteString(strconv.Itoa(len(step)) + ":" + step)
	}
	return b.String()
}

// coerce corrects strings in v that clearly mean a required number, boolean, null, array or object, and numbers and
// booleans that are sent as text. It reports whether it changed v.
func (e *edits) coerce(v *any, wrong *jsonschema.ValidationError) bool {
	changed := false
	var walk func(*jsonschema.ValidationError)
	walk = func(w *jsonschema.ValidationError) {
		for _, cause := range w.Causes {
			walk(cause)
		}
		want, ok := w.ErrorKind.(*kind.Type)
		if !ok {
			return
		}
		var raw string
		var to any
		switch is := at(*v, w.InstanceLocation).(type) {
		case string:
			raw, to, ok = parseAs(strings.TrimSpace(is), want.Want)
		case json.Number, bool:
			text := fmt.Sprint(is)
			_, number := is.(json.Number)
			ok = e.isText(w.InstanceLocation, want.Want) && !(number && strings.ContainsAny(text, "eE")) // 1e3 would be sent as 1000
			raw, to = strconv.Quote(text), text
		}
		if !ok || raw == "" {
			return
		}
		put(v, w.InstanceLocation, to)
		if e.at == nil {
			e.at = map[string]string{}
		}
		e.at[key(w.InstanceLocation)] = raw
		changed = true
	}
	walk(wrong)
	return changed
}

// isText reports whether a value may become a string: an argument that is sent as text, or an item or member of such an
// argument.
func (e *edits) isText(place, want []string) bool {
	return e.texts != nil && (len(place) == 1 || len(place) == 2) && slices.Contains(want, "string") && e.texts(place[0])
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// parseAs returns the value of one of the types that a string clearly means.
func parseAs(s string, types []string) (raw string, v any, ok bool) {
	has := func(t string) bool { return slices.Contains(types, t) }
	switch {
	case s == "":
	case (has("number") || has("integer")) && number.MatchString(s) && bounded(s):
		return s, json.Number(s), true
	case has("boolean") && (strings.EqualFold(s, "true") || strings.EqualFold(s, "false")):
		s = strings.ToLower(s)
		return s, s == "true", true
	case has("null") && s == "null":
		return s, nil, true
	case has("array") && s[0] == '[' || has("object") && s[0] == '{':
		v, fault := decode([]byte(s), false)
		return s, v, fault == nil
	}
	return "", nil, false
}

// apply returns the arguments with the corrections. All other parts keep their bytes.
func (e *edits) apply(args []byte) []byte {
	if len(e.at) == 0 {
		return args
	}
	return e.append(nil, gjson.ParseBytes(args), nil)
}

func (e *edits) append(dst []byte, r gjson.Result, place []string) []byte {
	if raw, ok := e.at[key(place)]; ok {
		r = gjson.Parse(raw)
	}
	if !r.IsObject() && !r.IsArray() {
		return append(dst, r.Raw...)
	}
	open, end := byte('{'), byte('}')
	if r.IsArray() {
		open, end = '[', ']'
	}
	dst = append(dst, open)
	i := 0
	r.ForEach(func(k, one gjson.Result) bool {
		if i > 0 {
			dst = append(dst, ',')
		}
		step := strconv.Itoa(i)
		if open == '{' {
			dst = append(append(dst, k.Raw...), ':')
			step = k.String()
		}
		dst = e.append(dst, one, append(slices.Clip(place), step))
		i++
		return true
	})
	return append(dst, end)
}
