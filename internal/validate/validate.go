// Package validate checks the arguments of tool calls against the tools' input schemas before anything is sent. First,
// it corrects wrong types if the meaning is clear: models write "5" where 5 is required. It reports all faults at once,
// in words with which a model can correct them.
//
// Schemas may come from untrusted servers. The package fetches nothing for a schema, and an unusable schema disables
// only the check of its own tool.
package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// maxSchema is the maximum size in bytes of a schema that is compiled.
const maxSchema = 4 << 20

// Cache holds recently used schemas, compiled. To compile a schema takes up to milliseconds and much memory, so this
// happens at the first call of a tool.
type Cache struct {
	seed maphash.Seed
	lru  simplelru.LRUCache[uint64, *entry]
}

// entry is a schema that is compiled by its first user.
type entry struct {
	raw  []byte
	once sync.Once
	s    *jsonschema.Schema
	err  error
	fast *quick // nil allows any value

	numbers int // count of numbers in its enums

	mu    sync.Mutex // guards steps: checks take microseconds and run one at a time
	steps int        // number of remaining steps
}

// NewCache returns a cache of at most size schemas.
func NewCache(size int) *Cache {
	l, err := lru.New[uint64, *entry](max(size, 1))
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &Cache{seed: maphash.MakeSeed(), lru: l}
}

// SchemaError reports that a schema is unusable, so nothing was checked.
type SchemaError struct{ Err error }

func (s *SchemaError) Error() string { return "the schema cannot be used: " + s.Err.Error() }
func (s *SchemaError) Unwrap() error { return s.Err }

type Faults []Fault

// Fault is one fault of arguments.
type Fault struct {
	Path string // the path of the value, such as body.tags[2]; empty for all arguments
	Text string

	unchecked bool // the check took too many steps
}

// Of adds the tool's name to the fault that the arguments could not be checked, because the tool's schema is partly the
// cause. Other faults stay as they are.
func (f Faults) Of(tool string) Faults {
	if len(f) == 1 && f[0].unchecked {
		return Faults{{Text: "those of " + tool + " " + f[0].Text}}
	}
	return f
}

// maxFaults bounds the faults that a message lists.
const maxFaults = 20

func (f Faults) Error() string {
	var b strings.Builder
	if len(f) == 1 {
		b.WriteString("the arguments are wrong: ")
	} else {
		fmt.Fprintf(&b, "%d things are wrong with the arguments:", len(f))
	}
	for i, one := range f {
		if i == maxFaults {
			fmt.Fprintf(&b, "\n- and %d more", len(f)-i)
			break
		}
		if len(f) > 1 {
			b.WriteString("\n- ")
		}
		if one.Path != "" {
			b.WriteString(one.Path + ": ")
		}
		b.WriteString(one.Text)
	}
	return b.String()
}

// Check checks args, a JSON object or nothing, against schema. It returns the arguments to send: args itself unless
// types were corrected, or {} for nothing. With closed, arguments that the schema does not name are wrong, even if the
// schema allows them.
//
// The error is of type Faults or *SchemaError. With a *SchemaError, Check returns args unchanged, so that a caller may
// send them unchecked.
func (c *Cache) Check(schema, args []byte, closed bool) ([]byte, error) {
	return c.check(schema, args, closed, corrections{on: true})
}

// CheckTexts is Check for a request that sends some arguments as text. If such an argument must be a string, a number
// is accepted and becomes a string.
func (c *Cache) CheckTexts(schema, args []byte, closed bool, texts func(name string) bool) ([]byte, error) {
	return c.check(schema, args, closed, corrections{true, texts})
}

// corrections are the types that may be corrected.
type corrections struct {
	on    bool
	texts func(name string) bool // arguments in which numbers may become strings; nil if there are none
}

// Verify checks args like Check without closed, but does not correct them. The error is of type Faults or *SchemaError.
func (c *Cache) Verify(schema, args []byte) error {
	_, err := c.check(schema, args, false, corrections{})
	return err
}

// VerifyNamed is Verify with closed: arguments that the schema does not name are wrong.
func (c *Cache) VerifyNamed(schema, args []byte) error {
	_, err := c.check(schema, args, true, corrections{})
	return err
}

func (c *Cache) check(schema, args []byte, closed bool, correct corrections) ([]byte, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = []byte("{}")
	}
	e := c.entry(schema)
	e.once.Do(e.compile)
	if e.err == nil && args[rawjson.Space(args, 0)] == '{' && (!closed || e.fast != nil && e.fast.closed) && e.fast.fits(args, true) {
		return args, nil
	}
	v, fault := decode(args, false)
	if fault != nil {
		return nil, Faults{*fault}
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, Faults{{Text: "they must be an object, not " + show(v)}}
	}
	if e.err != nil {
		return args, &SchemaError{e.err}
	}
	return e.check(v, args, closed, correct)
}

// Fits reports whether value matches schema. It does not correct value. If a name occurs twice in an object, the last
// value counts. The error is of type *SchemaError.
func (c *Cache) Fits(schema, value []byte) (bool, error) {
	e := c.entry(schema)
	e.once.Do(e.compile)
	if e.err == nil && e.fast.fits(value, false) {
		return true, nil
	}
	v, fault := decode(value, true)
	if fault != nil {
		return false, nil
	}
	if e.err != nil {
		return false, &SchemaError{e.err}
	}
	err := e.validate(v, len(value))
	if _, ok := errors.AsType[*SchemaError](err); ok {
		return false, err
	}
	return err == nil, nil
}

func (c *Cache) entry(schema []byte) *entry {
	key := maphash.Bytes(c.seed, schema)
	if e, ok := c.lru.Get(key); ok && bytes.Equal(e.raw, schema) {
		return e
	}
	e := &entry{raw: bytes.Clone(schema)}
	c.lru.Add(key, e)
	return e
}

// location is the address of a schema for the compiler.
const location = "tool:///schema"

func (e *entry) compile() {
	defer func() {
		if r := recover(); r != nil { // an untrusted schema must not end the bridge
			e.s, e.err = nil, fmt.Errorf("the compiler failed: %v", r)
		}
	}()
	if len(e.raw) > maxSchema {
		e.err = fmt.Errorf("it is larger than %d bytes", maxSchema)
		return
	}
	if fault := check(e.raw); fault != nil {
		e.err = errors.New("it is " + fault.Text)
		return
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.raw))
	if err != nil {
		e.err = errors.New("it is not JSON")
		return
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	left := maxPatterns
	c.UseRegexpEngine(func(s string) (jsonschema.Regexp, error) { return pattern(s, &left) })
	if err := c.AddResource(location, doc); err != nil {
		e.err = err
		return
	}
	if e.s, e.err = c.Compile(location); e.err == nil {
		e.fast = newQuick(e.s, map[*jsonschema.Schema]*quick{})
		e.countSteps()
	}
}

// validate checks v, which takes size bytes as JSON. The error is a *jsonschema.ValidationError or a *SchemaError.
func (e *entry) validate(v any, size int) (err error) {
	if e.tooManyNumbers(v) {
		return &SchemaError{errCompared}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = budget(size)
	defer func() {
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = &SchemaError{fmt.Errorf("the check failed: %w", cause)}
		}
	}()
	return e.s.Validate(v)
}

// budget is the maximum number of steps for a check of size bytes.
func budget(size int) int { return maxSteps + byteSteps*size }

func (e *entry) check(v any, args []byte, closed bool, correct corrections) ([]byte, error) {
	edits := edits{texts: correct.texts}
	err := e.validate(v, len(args))
	// A correction may reveal more: a string that becomes an object may again contain strings.
	for range 4 {
		wrong, ok := errors.AsType[*jsonschema.ValidationError](err)
		if !ok || !correct.on || !edits.coerce(&v, wrong) {
			break
		}
		err = e.validate(v, len(args))
	}
	var faults Faults
	if wrong, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		x := explainer{schema: e.raw, value: v}
		faults = x.faults(wrong)
	} else if errors.Is(err, errCompared) { // the value is too large, but must not pass unchecked because of that
		return nil, Faults{{Text: "they have " + errCompared.Error()}}
	} else if errors.Is(err, errSteps) { // a value that takes too many steps must not pass either
		return nil, Faults{{Text: fmt.Sprintf("cannot be checked in %d steps, the limit for arguments of their size: %v", budget(len(args)), errSteps), unchecked: true}}
	} else if err != nil {
		return args, err
	}
	if closed {
		faults = append(faults, unnamed(e.raw, v)...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return edits.apply(args), nil
}

// noLoader refuses to load other schemas.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it refers to another document, and the bridge fetches nothing for a schema")
}

// uncheckedPattern is a pattern that is not checked because it is too large or Go does not support it.
type uncheckedPattern string

func (uncheckedPattern) MatchString(string) bool { return true }
func (u uncheckedPattern) String() string        { return string(u) }

// maxPatterns bounds all patterns of a schema together, in steps of their programs. A step takes about 100 bytes, and
// a{1000} has a thousand steps.
const maxPatterns = 100_000

// pattern compiles a regular expression that has at most left steps.
func pattern(s string, left *int) (jsonschema.Regexp, error) {
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return uncheckedPattern(s), nil
	}
	n := programOf(tree)
	if n > *left {
		return uncheckedPattern(s), nil
	}
	*left -= n
	re, err := regexp.Compile(s)
	if err != nil {
		return uncheckedPattern(s), nil
	}
	return re, nil
}

// programOf estimates the number of steps in a pattern's program.
func programOf(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += programOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// known returns the names of the properties in an object schema.
func known(schema gjson.Result) []string {
	var names []string
	schema.Get("properties").ForEach(func(k, _ gjson.Result) bool {
		names = append(names, k.String())
		return true
	})
	return names
}

// unnamed returns the arguments that the schema does not name, unless the schema has rules for further arguments.
func unnamed(schema []byte, v any) Faults {
	root := gjson.ParseBytes(schema)
	for _, word := range []string{"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"} {
		if root.Get(gjson.Escape(word)).Exists() {
			return nil
		}
	}
	args, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	names := known(root)
	has := map[string]bool{}
	for _, n := range names {
		has[n] = true
	}
	var faults Faults
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !has[name] {
			faults = append(faults, Fault{Path: pathOf([]string{name}, v), Text: unknown(name, names)})
		}
	}
	return faults
}

// asNumber returns a JSON number as it was written.
func asNumber(v any) (string, bool) {
	n, ok := v.(json.Number)
	return n.String(), ok
}
