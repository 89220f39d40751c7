package param

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
)

// styled is the value of a parameter or of a form's field, with its style.
type styled struct {
	arg        string // the argument's name, for refusals
	name       string // the name in the request
	value      gjson.Result
	whole      bool   // the type is integer
	style      string // never empty
	explode    bool
	collection string // collectionFormat of Swagger 2.0; wins over style
	keep       *Set   // the bytes that are not encoded
}

func styledParameter(arg string, p *openapi.Parameter, v gjson.Result, keep *Set) styled {
	return styled{
		arg:        arg,
		name:       p.Name,
		value:      v,
		whole:      p.Type == "integer",
		style:      p.Style,
		explode:    p.Explode,
		collection: p.CollectionFormat,
		keep:       keep,
	}
}

// separators are the unencoded separators of Swagger 2.0's collections and of OpenAPI's delimited
// styles.
var separators = map[string]string{
	"csv": ",", "ssv": " ", "tsv": "\t", "pipes": "|",
	"spaceDelimited": " ", "pipeDelimited": "|",
}

// pair is an encoded name and value.
type pair struct{ name, value string }

func (p pair) String() string { return p.name + "=" + p.value }

// scalar encodes a scalar.
func (s *styled) scalar(v gjson.Result) (string, error) {
	t, err := text(s.arg, v, s.whole)
	return Escape(t, s.keep), err
}

// absent reports whether a value is not sent: null, and arrays and objects without content.
func absent(v gjson.Result) bool {
	if v.Type != gjson.JSON {
		return v.Type == gjson.Null
	}
	empty := true
	v.ForEach(func(_, one gjson.Result) bool {
		empty = one.Type == gjson.Null
		return empty
	})
	return empty
}

// items encodes the items of an array, without null. It refuses an item that contains the
// separator, unless the two differ when encoded.
func (s *styled) items(separator string) ([]string, error) {
	var out []string
	var err error
	s.value.ForEach(func(_, one gjson.Result) bool {
		if one.Type == gjson.Null {
			return true
		}
		var t string
		if s.collection != "" && one.IsArray() { // arrays within arrays are csv
			inner := *s
			inner.value, inner.collection = one, "csv"
			var parts []string
			parts, err = inner.items(",")
			t = strings.Join(parts, ",")
		} else {
			t, err = s.part(one, separator)
		}
		out = append(out, t)
		return err == nil
	})
	return out, err
}

// part encodes one of several values. It refuses a value as items does.
func (s *styled) part(v gjson.Result, separator string) (string, error) {
	t, err := text(s.arg, v, s.whole)
	if err == nil && ambiguous(t, separator, s.keep) {
		err = Refuse("%s: an item must not contain %s, which stands between the items", s.arg, quoted(separator))
	}
	return Escape(t, s.keep), err
}

// encodedSeparator returns the separator as it is sent. Blanks and bars need encoding in a URL.
func encodedSeparator(separator string, keep *Set) string {
	if strings.Contains(" \t|", separator) {
		return Escape(separator, keep)
	}
	return separator
}

// ambiguous reports whether a text contains the separator, and the two are the same when encoded.
func ambiguous(t, separator string, keep *Set) bool {
	return separator != "" && strings.Contains(t, separator) && Escape(separator, keep) == encodedSeparator(separator, keep)
}

// members encodes the members of an object, without null.
func (s *styled) members(separator string) ([]pair, error) {
	names := Unreserved // no character of a name may end the name
	if s.keep == everything {
		names = everything
	}
	var out []pair
	var err error
	s.value.ForEach(func(k, one gjson.Result) bool {
		if one.Type == gjson.Null {
			return true
		}
		name := k.String()
		if ambiguous(name, separator, names) || ambiguous(name, "=", names) {
			err = Refuse("%s: the name %.40q must not contain %s or =", s.arg, name, quoted(separator))
			return false
		}
		var t string
		t, err = s.part(one, separator)
		out = append(out, pair{Escape(name, names), t})
		return err == nil
	})
	return out, err
}

// list encodes an array with the separator between items. In an object, the separator is also between
// a name and its value, or = if exploded.
func (s *styled) list(separator string, exploded bool) (string, error) {
	between := encodedSeparator(separator, s.keep)
	if s.value.IsArray() {
		parts, err := s.items(separator)
		return strings.Join(parts, between), err
	}
	members, err := s.members(separator)
	var parts []string
	for _, p := range members {
		if exploded {
			parts = append(parts, p.String())
		} else {
			parts = append(parts, p.name, p.value)
		}
	}
	return strings.Join(parts, between), err
}

// path encodes the value for {name} in a path.
func (s *styled) path() (string, error) {
	if s.value.Type != gjson.JSON {
		v, err := s.scalar(s.value)
		switch {
		case err != nil:
			return "", err
		case s.collection != "" || s.style == "simple" || s.style == "":
			return v, nil
		case s.style == "label":
			return "." + v, nil
		case s.style == "matrix" && v == "":
			return ";" + Escape(s.name, Unreserved), nil
		case s.style == "matrix":
			return ";" + Escape(s.name, Unreserved) + "=" + v, nil
		}
		return v, nil
	}
	if sep, ok := separators[s.collection]; ok && s.value.IsArray() {
		return s.list(sep, false)
	}
	switch s.style {
	case "label":
		sep := ","
		if s.explode {
			sep = "."
		}
		v, err := s.list(sep, s.explode)
		return "." + v, err
	case "matrix":
		name := Escape(s.name, Unreserved)
		if !s.explode {
			v, err := s.list(",", false)
			return ";" + name + "=" + v, err
		}
		if s.value.IsArray() {
			parts, err := s.items("")
			return ";" + name + "=" + strings.Join(parts, ";"+name+"="), err
		}
		v, err := s.list(";", true)
		return ";" + v, err
	}
	return s.list(",", s.explode)
}

// pairs encodes the value for a query, a form or cookies.
func (s *styled) pairs() ([]pair, error) {
	name := Escape(s.name, Unreserved)
	one := func(v string, err error) ([]pair, error) { return []pair{{name, v}}, err }
	if s.value.Type != gjson.JSON {
		return one(s.scalar(s.value))
	}
	sep, delimited := separators[s.style]
	switch {
	case s.style == "deepObject":
		return s.deep(nil, name, s.value)
	case s.collection == "multi" && s.value.IsArray():
	case s.collection != "" && s.value.IsArray():
		return one(s.list(cmp.Or(separators[s.collection], ","), false))
	case !s.explode && delimited:
		return one(s.list(sep, false))
	case !s.explode:
		return one(s.list(",", false))
	}
	if s.value.IsObject() {
		return s.members("")
	}
	parts, err := s.items("")
	pairs := make([]pair, len(parts))
	for i, p := range parts {
		pairs[i] = pair{name, p}
	}
	return pairs, err
}

// maxDeep bounds the nesting of objects in a query.
const maxDeep = 20

// deep writes objects as name[member]=value, to any depth. The specification leaves arrays open:
// like most servers, deep writes name[]=value for scalars, and indexes for other items.
func (s *styled) deep(dst []pair, name string, v gjson.Result) ([]pair, error) {
	var err error
	switch {
	case v.Type == gjson.Null:
	case strings.Count(name, "%5B") > maxDeep:
		err = Refuse("%s: nested more than %d levels deep", s.arg, maxDeep)
	case v.IsObject():
		v.ForEach(func(k, one gjson.Result) bool {
			if strings.ContainsAny(k.String(), "[]") {
				err = Refuse("%s: a name must not contain [ or ]", s.arg)
				return false
			}
			dst, err = s.deep(dst, name+"%5B"+Escape(k.String(), Unreserved)+"%5D", one)
			return err == nil
		})
	case v.IsArray():
		i := 0
		v.ForEach(func(_, one gjson.Result) bool {
			index := ""
			if one.Type == gjson.JSON {
				index = strconv.Itoa(i)
			}
			dst, err = s.deep(dst, name+"%5B"+index+"%5D", one)
			i++
			return err == nil
		})
	default:
		var t string
		t, err = s.scalar(v)
		dst = append(dst, pair{name, t})
	}
	return dst, err
}

// quoted returns the name of a separator for a refusal.
func quoted(s string) string {
	switch s {
	case " ":
		return "a space"
	case "\t":
		return "a tab"
	}
	return `"` + s + `"`
}
