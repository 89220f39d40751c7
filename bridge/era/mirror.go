package era

import (
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// mirrorDepth and mirrorNodes bound the schemas that NewMirror reads: their nesting, and their number of schemas.
const (
	mirrorDepth = 64
	mirrorNodes = 10_000
)

// Mirror knows the arguments of a tool that headers repeat, as x-mcp-header in the inputSchema of the tool asks
// (2026-07-28, Streamable HTTP). A nil Mirror knows none. A Mirror is immutable.
type Mirror struct {
	root    branch
	headers []mirrored
}

type mirrored struct {
	header string // in canonical form
	kind   string // string, integer or boolean
	path   []string
}

// branch is a node in the tree of properties with annotations.
type branch struct {
	header   int // 1 + index in Mirror.headers; 0 if the property has no annotation
	branches map[string]*branch
}

// NewMirror reads the annotations in a tool's inputSchema. If there are none, it returns nil. If one is invalid, it
// returns an error that names the property and the rule. Such a tool cannot be used over HTTP.
func NewMirror(inputSchema []byte) (*Mirror, error) {
	if !mayAnnotate(inputSchema) {
		return nil, nil
	}
	var all []annotation
	s := schemaWalk{
		b:     inputSchema,
		depth: mirrorDepth,
		nodes: mirrorNodes,
		found: func(a annotation) { all = append(all, a) },
	}
	if s.value(rawjson.Space(inputSchema, 0), 0, true) < 0 {
		if s.err == nil {
			s.err = errJSON
		}
		return nil, fmt.Errorf("inputSchema: %w", s.err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	m := &Mirror{}
	taken := map[string]bool{}
	for _, a := range all {
		if err := m.add(a, taken); err != nil {
			return nil, fmt.Errorf("%s: %s %w", place("inputSchema: property", a.path), annotationName, err)
		}
	}
	return m, nil
}

// add adds an annotation, or returns the rule that the annotation breaks. taken are the headers of the other
// annotations.
func (m *Mirror) add(a annotation, taken map[string]bool) error {
	name, ok := rawjson.Text(a.value)
	kind := ""
	if len(a.types) == 1 {
		kind, _ = rawjson.Text(a.types[0])
	}
	header := textproto.CanonicalMIMEHeaderKey(HeaderParam + name)
	switch {
	case !a.plain:
		return errors.New("is not on a path of properties from the root")
	case !ok || name == "":
		return errors.New("must be a string and not empty")
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("must be a token: letters, digits and !#$%&'*+-.^_`|~")
	case kind != "string" && kind != "integer" && kind != "boolean":
		return errors.New("needs a property of type string, integer or boolean")
	case taken[header]:
		return errors.New("names the same header as another one")
	}
	taken[header] = true
	at := &m.root
	for _, p := range a.path {
		next := at.branches[p]
		if next == nil {
			next = &branch{}
			if at.branches == nil {
				at.branches = map[string]*branch{}
			}
			at.branches[p] = next
		}
		at = next
	}
	if at.header != 0 {
		return errors.New("appears twice")
	}
	m.headers = append(m.headers, mirrored{
		header: header,
		kind:   kind,
		path:   a.path,
	})
	at.header = len(m.headers)
	return nil
}

// place returns the name of a property for error texts, cut to 100 bytes.
func place(what string, path []string) string {
	name := strings.Join(path, ".")
	if len(name) > 100 {
		name = name[:100] + "…"
	}
	return what + " " + strconv.Quote(name)
}

// argument is the value of a property with an annotation, in one call.
type argument struct {
	raw   []byte // nil if the property is absent or null
	twice bool   // the property, or an object around it, is duplicated
}

// find returns the arguments that headers repeat, in the order of m.headers. It scans the arguments once, and each
// object on the way to such an argument once more.
func (m *Mirror) find(arguments []byte) []argument {
	found := make([]argument, len(m.headers))
	m.root.look(arguments, found)
	return found
}

func (b *branch) look(object []byte, found []argument) {
	var times map[*branch]int
	rawjson.Each(object, func(name, value []byte) {
		one := b.branches[string(name)]
		if one == nil {
			return
		}
		if times == nil {
			times = make(map[*branch]int, len(b.branches))
		}
		times[one]++
		switch {
		case times[one] == 2:
			one.mark(found)
			return
		case times[one] > 2:
			return
		}
		if one.header > 0 && rawjson.Given(value) {
			found[one.header-1].raw = value
		}
		if one.branches != nil {
			one.look(value, found)
		}
	})
}

// mark marks the arguments at and below b as duplicated.
func (b *branch) mark(found []argument) {
	if b.header > 0 {
		found[b.header-1].twice = true
	}
	for _, next := range b.branches {
		next.mark(found)
	}
}

// Headers returns the headers for a call with these arguments, which are a raw JSON object or nil. It omits an
// argument that is absent, null or duplicated, or whose type differs from that in the schema.
func (m *Mirror) Headers(arguments []byte) map[string][]string {
	if m == nil {
		return nil
	}
	var h map[string][]string
	for i, a := range m.find(arguments) {
		p := m.headers[i]
		kind, v := scalar(a.raw)
		if a.twice || kind != p.kind {
			continue
		}
		if h == nil {
			h = map[string][]string{}
		}
		h[p.header] = []string{EncodeHeader(v)}
	}
	return h
}

// Check returns the fault of the headers of a call with these arguments as a text for error -32020, or "" (R-076 to
// h has names in canonical form, and may have other headers. Check does not compare the types of arguments with
// the schema, as the server does that.
func (m *Mirror) Check(h map[string][]string, arguments []byte) string {
	if m == nil {
		return ""
	}
	for i, a := range m.find(arguments) {
		p := m.headers[i]
		if what := a.differs(h[p.header]); what != "" {
			return p.header + " " + what + place(" argument", p.path)
		}
	}
	return ""
}

// differs returns the fault of the values of a's header, or "".
func (a argument) differs(values []string) string {
	switch {
	case a.twice:
		return "cannot repeat, since it appears twice, the"
	case a.raw == nil && len(values) > 0:
		return "is present without the"
	case a.raw == nil:
		return ""
	case len(values) == 0:
		return "is missing beside the"
	case len(values) > 1:
		return "appears more than once for the"
	}
	v, ok := DecodeHeader(values[0])
	if !ok {
		return "is not valid base64 of UTF-8, for the"
	}
	kind, want := scalar(a.raw)
	switch kind {
	case "":
		return "can repeat only a string, a boolean, or an integer that floating point has exactly, not the"
	case "integer":
		if n, ok := safeInteger(v); ok {
			v = strconv.FormatInt(n, 10)
		}
	}
	if v != want {
		return "differs from the"
	}
	return ""
}

// scalar returns the type of a raw value, and its text in a header. The type is empty if headers cannot repeat the
// value.
func scalar(raw []byte) (kind, v string) {
	switch s, isText := rawjson.Text(raw); {
	case isText:
		return "string", s
	case string(raw) == "true" || string(raw) == "false":
		return "boolean", string(raw)
	}
	if len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') {
		if n, ok := safeInteger(string(raw)); ok {
			return "integer", strconv.FormatInt(n, 10)
		}
	}
	return "", ""
}

// maxInteger bounds the integers in headers: peers can represent them exactly in floating point.
const maxInteger = 1<<53 - 1

// safeInteger returns the value of a JSON number that is an integer up to maxInteger, in any notation: 42, 42.0, 4.2e1.
// It calculates with the digits, so that it loses none.
func safeInteger(raw string) (int64, bool) {
	rest, minus := strings.CutPrefix(raw, "-")
	mantissa, exponent, hasExponent := rest, "0", false
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa, exponent, hasExponent = rest[:i], rest[i+1:], true
	}
	whole, fraction, hasFraction := strings.Cut(mantissa, ".")
	if !isDigits(whole) || hasFraction && !isDigits(fraction) || len(whole) > 1 && whole[0] == '0' ||
		hasExponent && !isDigits(strings.TrimPrefix(strings.TrimPrefix(exponent, "+"), "-")) {
		return 0, false
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return 0, true
	}
	shift, err := strconv.ParseInt(exponent, 10, 31)
	if err != nil {
		return 0, false // larger than maxInteger, or no integer
	}
	zeros := int(shift) + len(digits) - len(significant) - len(fraction)
	if zeros < 0 || len(significant)+zeros > len("9007199254740991") {
		return 0, false
	}
	n, err := strconv.ParseInt(significant+strings.Repeat("0", zeros), 10, 64)
	if err != nil || n > maxInteger {
		return 0, false
	}
	if minus {
		n = -n
	}
	return n, true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
