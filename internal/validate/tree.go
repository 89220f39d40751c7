package validate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	maxDepth = 200
	// maxDigits bounds the digits of a number before and after its point, with the exponent written out. Checks are
	// exact, and 1e999999999 is a short text for a huge number.
	maxDigits = 1100
)

// check reports whether b is JSON that is not nested too deeply. Recursive readers need this check before they start.
func check(b []byte) *Fault {
	switch {
	case jsonrpc.Valid(b, maxDepth):
		return nil
	case rawjson.Deeper(b, maxDepth):
		return &Fault{Text: fmt.Sprintf("nested more than %d levels deep", maxDepth)}
	}
	return &Fault{Text: "not valid JSON"}
}

// decode decodes JSON for the validator. Numbers keep their digits. A name that occurs twice in an object is a fault,
// because another reader may take the other value. With last, it is not a fault and the last value counts.
func decode(b []byte, last bool) (any, *Fault) {
	if fault := check(b); fault != nil {
		return nil, fault
	}
	v, wrong := value(gjson.ParseBytes(b), last)
	if wrong != nil {
		slices.Reverse(wrong.path)
		return nil, &Fault{Path: pathOf(wrong.path, nil), Text: wrong.text}
	}
	return v, nil
}

// valueFault is a fault in a value. Callers add the path when they return, innermost step first, because nearly all
// values are valid and do not need a path.
type valueFault struct {
	path []string
	text string
}

func (v *valueFault) in(step string) *valueFault {
	if v != nil {
		v.path = append(v.path, step)
	}
	return v
}

func value(r gjson.Result, last bool) (v any, wrong *valueFault) {
	switch {
	case r.IsObject():
		m := map[string]any{}
		r.ForEach(func(k, one gjson.Result) bool {
			name := k.String()
			if _, twice := m[name]; twice && !last {
				wrong = (&valueFault{text: "is given twice"}).in(name)
				return false
			}
			var member any
			member, wrong = value(one, last)
			m[name], wrong = member, wrong.in(name)
			return wrong == nil
		})
		return m, wrong
	case r.IsArray():
		a := []any{}
		r.ForEach(func(_, one gjson.Result) bool {
			var item any
			if item, wrong = value(one, last); wrong != nil {
				wrong.in(strconv.Itoa(len(a)))
			}
			a = append(a, item)
			return wrong == nil
		})
		return a, wrong
	case r.Type == gjson.String:
		return r.Str, nil
	case r.Type == gjson.Number:
		if !bounded(r.Raw) {
			return nil, &valueFault{text: "is a number with too many digits"}
		}
		return json.Number(r.Raw), nil
	case r.Type == gjson.Null:
		return nil, nil
	}
	return r.Type == gjson.True, nil
}

// bounded reports whether a number is small enough for exact arithmetic.
func bounded(raw string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(raw), "e")
	if len(mantissa) > maxDigits {
		return false
	}
	if exponent == "" {
		return true
	}
	e, err := strconv.Atoi(exponent)
	return err == nil && e <= maxDigits && e >= -maxDigits
}

func at(v any, place []string) any {
	for _, step := range place {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// put replaces the value at an existing path.
func put(v *any, place []string, to any) {
	if len(place) == 0 {
		*v = to
		return
	}
	last := place[len(place)-1]
	switch in := at(*v, place[:len(place)-1]).(type) {
	case map[string]any:
		in[last] = to
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i >= 0 && i < len(in) {
			in[i] = to
		}
	}
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// pathOf writes a path for people, such as body.tags[2]. It quotes steps that are not plain names. With v, it
// distinguishes arrays from objects; if v is nil, numbers are items.
func pathOf(place []string, v any) string {
	var b strings.Builder
	for i, step := range place {
		isItem := false
		if v == nil {
			_, err := strconv.Atoi(step)
			isItem = err == nil && i > 0
		} else {
			_, isItem = at(v, place[:i]).([]any)
		}
		switch {
		case isItem:
			b.WriteString("[" + step + "]")
		case !plain.MatchString(step):
			b.WriteString("[" + quote(step) + "]")
		case i == 0:
			b.WriteString(step)
		default:
			b.WriteString("." + step)
		}
	}
	return b.String()
}

// maxShown bounds the characters of a value that a message repeats.
const maxShown = 60

// quote writes a string as JSON, and shortens a long string.
func quote(s string) string {
	cut := ""
	if r := []rune(s); len(r) > maxShown {
		s, cut = string(r[:maxShown]), "…"
	}
	b, err := json.Marshal(s)
	if err != nil {
		return `"…"`
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b[:len(b)-1])) + cut + `"`
}

// show writes a value for a message.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return quote(v)
	case bool:
		return strconv.FormatBool(v)
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	}
	if n, ok := asNumber(v); ok && len(n) <= maxShown {
		return n
	}
	return "a number"
}
