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

// These bound the schemas whose annotations count.
const (
	mirrorDepth = 64
	mirrorNodes = 10_000
)

// Mirror holds the arguments of a tool that headers repeat, as x-mcp-header in its inputSchema asks (2026-07-28,
// Streamable HTTP). nil repeats none. It is immutable.
type Mirror struct {
	root    branch
	headers []mirrored
}

type mirrored struct {
	header string // in Go's form
	kind   string // string, integer or boolean
	path   []string
}

// branch is a node of the tree of annotated properties.
type branch struct {
	header   int // 1 + index in Mirror.headers; 0 if it is not annotated
	branches map[string]*branch
}

// NewMirror reads the annotations of a tool's inputSchema. It returns nil if there are none. For an invalid one
// it returns an error that names the property and the rule. Over HTTP such a tool is unusable.
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

// add adds an annotation, or returns the rule that it breaks. taken holds the headers of others.
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

// place returns the name of a property for messages, cut if it is very long.
func place(what string, path []string) string {
	name := strings.Join(path, ".")
	if len(name) > 100 {
		name = name[:100] + "…"
	}
	return what + " " + strconv.Quote(name)
}

// argument is the value of one annotated property in a call.
type argument struct {
	raw   []byte // nil if absent or null
	twice bool   // it, or an object around it, is duplicated
}

// find returns the repeated arguments in the order of m.headers. It scans the arguments once, and objects with
// annotated properties again.
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

// mark marks all properties below b as ambiguous.
func (b *branch) mark(found []argument) {
	if b.header > 0 {
		found[b.header-1].twice = true
	}
	for _, next := range b.branches {
		next.mark(found)
	}
}

// Headers returns the headers for a call with these arguments, a raw JSON object or nil. It omits
// arguments that are absent, null, duplicated or of another type than in the schema.
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

// Check returns what is wrong with the headers of a call with these arguments, or "". The text is for
// the message of -32020. h has names in Go's form, and may hold other headers. The server checks the types of
// arguments. Check only requires a type that a header can repeat.
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

// differs returns what is wrong with the values of the header of a.
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

// scalar returns the type and the header text of a raw value. The type is empty if a header cannot repeat it.
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

// maxInteger bounds the integers in headers: peers with floating point represent them exactly.
const maxInteger = 1<<53 - 1

// safeInteger returns the integer value of a JSON number in any notation: 42, 42.0, 4.2e1. It works on digits,
// so that none is lost.
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
		return 0, false // beyond these integers, or a fraction
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
