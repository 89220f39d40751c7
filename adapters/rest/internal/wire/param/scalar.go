package param

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Refusal says why a call is not made. Clients may see the text.
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return string(r) }

func Refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// maxPlain bounds the exponents that plainNumber writes out. The resulting number may have twice as many
// digits.
const maxPlain = 400

// text returns a value as text: an array or an object as JSON, and null as nothing. name is the
// argument's, for refusals; whole is as for plainNumber.
func text(name string, v gjson.Result, whole bool) (string, error) {
	switch v.Type {
	case gjson.String:
		return v.Str, nil
	case gjson.Number:
		s, ok := plainNumber(v.Raw, whole)
		if !ok {
			return "", Refuse("%s: the number %.40s has too many digits", name, v.Raw)
		}
		return s, nil
	case gjson.JSON:
		return string(rawjson.Compact([]byte(v.Raw))), nil
	case gjson.Null:
		return "", nil
	}
	return v.Raw, nil
}

// plainNumber returns a JSON number with all its digits and without an exponent, since few servers
// read 1.7e9 as an integer. With whole, it drops a fraction of zeros. It reports false if the number
// has too many digits.
func plainNumber(raw string, whole bool) (string, bool) {
	sign, rest := "", raw
	if strings.HasPrefix(rest, "-") {
		sign, rest = "-", rest[1:]
	}
	mantissa, exponent, has := strings.Cut(strings.ToLower(rest), "e")
	before, after, _ := strings.Cut(mantissa, ".")
	if has {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > maxPlain || e < -maxPlain {
			return "", false
		}
		switch {
		case e >= len(after):
			before, after = before+after+strings.Repeat("0", e-len(after)), ""
		case e >= 0:
			before, after = before+after[:e], after[e:]
		case -e < len(before):
			before, after = before[:len(before)+e], before[len(before)+e:]+after
		default:
			before, after = "0", strings.Repeat("0", -e-len(before))+before+after
		}
		if before = strings.TrimLeft(before, "0"); before == "" {
			before = "0"
		}
	}
	if whole && strings.Trim(after, "0") == "" {
		after = ""
	}
	if after != "" {
		before += "." + after
	}
	if len(before) > 2*maxPlain {
		return "", false
	}
	return sign + before, true
}

// Plain returns a JSON number as plainNumber does, or as it is if it has too many digits.
func Plain(raw string) string {
	if s, ok := plainNumber(raw, false); ok {
		return s
	}
	return raw
}

// renamed returns a value with its members renamed at every depth. It refuses an object with a
// repeated name, since only one of the values was checked.
func renamed(arg string, v gjson.Result, names map[string]string) (gjson.Result, error) {
	if len(names) == 0 || v.Type != gjson.JSON {
		return v, nil
	}
	b, err := appendRenamed(nil, arg, v, names)
	return gjson.ParseBytes(b), err
}

// ByShownNames renames arguments, and members within them, from the document's names to the names
// that clients see. It reports false if no names differ, or if a name would occur twice.
func ByShownNames(t *openapi.Tool, args []byte) ([]byte, bool) {
	top := map[string]string{}
	for _, arg := range t.Arguments {
		own := arg.Field
		if arg.Parameter != nil {
			own = arg.Parameter.Name
		}
		if own == "" || own == arg.Name {
			continue
		}
		if _, twice := top[own]; twice {
			return nil, false // in the query and in a header, for example
		}
		top[own] = arg.Name
	}
	for _, arg := range t.Arguments {
		delete(top, arg.Name) // the client already uses the shown name
	}
	nested := map[string]string{}
	for shown, own := range t.Keys {
		if has, ok := nested[own]; !ok || len(shown) < len(has) || len(shown) == len(has) && shown < has {
			nested[own] = shown
		}
	}
	if len(top)+len(nested) == 0 {
		return nil, false
	}
	out := []byte{'{'}
	seen := map[string]bool{}
	var err error
	gjson.ParseBytes(args).ForEach(func(k, v gjson.Result) bool {
		name := k.String()
		if shown, ok := top[name]; ok {
			name = shown
		}
		if seen[name] {
			err = Refuse("%.60s is given twice", name)
			return false
		}
		seen[name] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(rawjson.AppendString(out, name), ':')
		out, err = appendRenamed(out, name, v, nested)
		return err == nil
	})
	return append(out, '}'), err == nil
}

func appendRenamed(dst []byte, arg string, v gjson.Result, names map[string]string) ([]byte, error) {
	if v.Type != gjson.JSON {
		return append(dst, v.Raw...), nil
	}
	open, end := byte('{'), byte('}')
	if v.IsArray() {
		open, end = '[', ']'
	}
	dst = append(dst, open)
	first := true
	seen := map[string]bool{}
	var err error
	v.ForEach(func(k, one gjson.Result) bool {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if open == '{' {
			name := k.String()
			if to, ok := names[name]; ok {
				name = to
				dst = rawjson.AppendString(dst, to)
			} else {
				dst = append(dst, k.Raw...)
			}
			if seen[name] {
				err = Refuse("%s: has %.60s twice", arg, name)
				return false
			}
			seen[name] = true
			dst = append(dst, ':')
		}
		dst, err = appendRenamed(dst, arg, one, names)
		return err == nil
	})
	return append(dst, end), err
}
