package toolset

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/validate"
)

// Entry is an entry of Config.Tools. With a Request it is a tool of its own,
// otherwise it changes one that the document gives.
type Entry struct {
	// Key is an operationId, or METHOD and path as the document has them; for a
	// tool of its own it is the tool's name.
	Key  string
	Line int // of the configuration; 0 when a program has made it
	// Lines are those of the entry's keys.
	Lines map[string]int
	// Off takes an operation away.
	Off bool
	// Name, Title and About are what clients see. Empty leaves it as it is.
	Name, Title, About string
	// Request is a method and a template (RFC 6570) of the path and the query,
	// such as GET /forecast/{city}{?days,units}.
	Request string
	// Args are arguments: new ones, and changes to those of the operation.
	Args []Arg
	// Body is a JSON tree. A string that is nothing but {arg} stands for the
	// argument as it is; within other text it is put in as text.
	Body json.RawMessage
	// Headers are templates of text, by their names.
	Headers map[string]string
	// Query is a JSON object of what is put into the query of an operation of the
	// document, in the form of Body.
	Query json.RawMessage
	// Result is a gjson path that is applied to answers.
	Result string
	// Error is a gjson path of what an answer that says no has to say, and ErrorIf
	// one of what answers of success have when they say no after all.
	Error, ErrorIf string
	// Timeout is how long a call may take with all its attempts, and Attempts how
	// often its request is made; 0 means as for the others.
	Timeout  time.Duration
	Attempts int
	// Cache says whether answers are kept; nil means as for the others. KeepFor is
	// for how long those are that do not say so themselves.
	Cache   *bool
	KeepFor time.Duration
	// Limits bound the results of its calls; what is 0 is as for the others.
	Limits ToolLimits
	// As is AsResource for a GET that is a resource, and otherwise empty.
	As string
	// Writes says whether the tool changes anything; nil goes by the method.
	Writes *bool
	// Output says whether it has an output schema, where the document has one; nil
	// means that it has.
	Output *bool
	// Ruled: only rules speak of the operation, and no entry of the configuration.
	Ruled bool

	harmless bool // its request may be made again, whatever the method
}

// Bytes is a number of bytes.
type Bytes int64

// ToolLimits are Limits for the calls of one tool.
type ToolLimits struct {
	Answer Bytes `yaml:"answer"` // text in one result
}

// Arg is an argument of a tool: a new one, or a change to one. One that an
// operation of the document lacks is new if its schema says what it is.
type Arg struct {
	Name     string // as the API has it
	Line     int    // of the configuration; 0 when a program has made it
	Optional bool   // it may be left out
	// Off takes an optional argument away, and Value is sent in the place of one
	// that clients do not see.
	Off   bool
	Value json.RawMessage
	// As is the name under which clients see it.
	As string
	// About is its description, and Default what the API takes when it is left
	// out, which clients are told.
	About   string
	Default json.RawMessage
	// Schema is a JSON Schema; for one that is changed, members that replace
	// those of the same name.
	Schema json.RawMessage

	where string // of the rule that says it
}

// Fault is something that is wrong with an entry of Config.Tools, or of Config.Args.
type Fault struct {
	Key  string // such as "issues/lock: args: owner: "
	Line int    // of the configuration; 0 when it is not known
	Text string // says what is wrong

	common bool // it is about Config.Args
}

// String returns the fault as operators read it.
func (f Fault) String() string {
	if f.common {
		return f.Key + f.Text
	}
	return "tools: " + f.Key + f.Text
}

// Faults are all that is wrong.
type Faults []Fault

// Error has a line for each.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Fault is about the entry as a whole.
func (t *Entry) Fault(format string, args ...any) Fault {
	return Fault{Key: t.Key + ": ", Line: t.Line, Text: fmt.Sprintf(format, args...)}
}

// KeyFault is about one of the entry's keys, or about an inner one: "body: name".
func (t *Entry) KeyFault(key, format string, args ...any) Fault {
	return Fault{Key: t.Key + ": ", Line: t.LineOf(key), Text: fmt.Sprintf(format, args...)}
}

// LineOf returns the line of a key, or of the nearest around it that is known.
func (t *Entry) LineOf(key string) int {
	for {
		if line := t.Lines[key]; line > 0 {
			return line
		}
		i := strings.LastIndex(key, ": ")
		if i < 0 {
			return t.Line
		}
		key = key[:i]
	}
}

func (t *Entry) argFault(a *Arg, format string, args ...any) Fault {
	return Fault{Key: t.Key + ": args: " + a.Name + ": ", Line: a.Line, Text: fmt.Sprintf(format, args...)}
}

// plainName is what every provider of models takes as a name.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// Check reports what can be seen to be wrong without a document.
func (t *Entry) Check() Faults {
	var faults Faults
	for i := range t.Args {
		if why := t.Args[i].unusable(); why != "" {
			faults = append(faults, t.argFault(&t.Args[i], "is no JSON Schema: %s", why))
		}
	}
	faults = append(faults, t.settingFaults()...)
	if t.Request != "" {
		if len(t.Query) > 0 {
			faults = append(faults, t.KeyFault("query", "query is for operations of the document: write it into the request, as GET /items{?a} or GET /items?a=1"))
		}
		_, wrong := t.Build()
		return append(faults, wrong...)
	}
	if t.Name != "" && !plainName.MatchString(t.Name) {
		faults = append(faults, t.Fault("name must have 1 to 64 letters, digits, '_', '.' and '-'"))
	}
	if len(t.Query) > 0 && !gjson.ParseBytes(t.Query).IsObject() {
		faults = append(faults, t.KeyFault("query", "query must be a mapping of parameters to values, such as { since: \"{since}\" }"))
	}
	for i := range t.Args {
		a := &t.Args[i]
		switch {
		case a.Optional && !a.declares():
			faults = append(faults, t.argFault(a, "the ? is for tools with a request, and for arguments that are added, with a type: the document says what is required"))
		case !plainName.MatchString(a.Name) && a.declares():
			faults = append(faults, t.argFault(a, "the name of an argument has 1 to 64 letters, digits, '_', '.' and '-'"))
		case a.As != "" && !plainName.MatchString(a.As):
			faults = append(faults, t.argFault(a, "as must have 1 to 64 letters, digits, '_', '.' and '-'"))
		case (a.Off || a.Value != nil) && (a.As != "" || a.About != "" || a.Default != nil || len(a.Schema) > 0 || a.Off && a.Value != nil):
			faults = append(faults, t.argFault(a, "clients do not see it: nothing else can be said about it"))
		}
	}
	return faults
}

// unusable says why the schema cannot be used to check values; empty if it can.
func (a *Arg) unusable() string {
	if len(a.Schema) == 0 {
		return ""
	}
	_, err := validate.NewCache(1).Fits(a.Schema, []byte("null"))
	wrong, ok := errors.AsType[*validate.SchemaError](err)
	if !ok {
		return ""
	}
	return strings.Join(strings.Fields(wrong.Err.Error()), " ")
}

// types are those of JSON Schema, and those that stand for several.
var types = []string{"string", "integer", "number", "boolean", "object", "array"}

// ParseArg reads the short form of an argument's schema: a type, [type] for a
// list, or words with | between them; "= VALUE" behind it is the default.
func ParseArg(text string) (schema, def json.RawMessage, err error) {
	kind, value, hasDefault := strings.Cut(text, "=")
	kind, value = strings.TrimSpace(kind), strings.TrimSpace(value)
	inner, list := strings.CutPrefix(kind, "[")
	if list {
		if inner, list = strings.CutSuffix(inner, "]"); !list {
			return nil, nil, fmt.Errorf("%q has no closing bracket", kind)
		}
		inner = strings.TrimSpace(inner)
	}
	if inner == "" {
		return nil, nil, fmt.Errorf("there is no type: write one of %s, or words such as metric | imperial", strings.Join(types, ", "))
	}
	isText := false
	switch words := strings.Split(inner, "|"); {
	case len(words) > 1:
		for i := range words {
			if words[i] = strings.TrimSpace(words[i]); words[i] == "" {
				return nil, nil, fmt.Errorf("%q has an empty word", kind)
			}
		}
		enum, _ := json.Marshal(words) // of strings
		schema, isText = json.RawMessage(`{"type":"string","enum":`+string(enum)+`}`), true
	case inner == "any":
		schema = json.RawMessage(`{}`)
	case slices.Contains(types, inner):
		schema, isText = json.RawMessage(`{"type":"`+inner+`"}`), inner == "string"
		if inner == "array" {
			schema = json.RawMessage(`{"type":"array","items":{}}`)
		}
	default:
		return nil, nil, fmt.Errorf("%q is no type: write one of %s, any, [type] for a list, or words such as metric | imperial", inner, strings.Join(types, ", "))
	}
	if list {
		schema, isText = json.RawMessage(`{"type":"array","items":`+string(schema)+`}`), false
	}
	if hasDefault {
		def = json.RawMessage(value)
		if isText {
			def, _ = json.Marshal(strings.Trim(value, `"`)) // of a string
		} else if !gjson.Valid(value) {
			return nil, nil, fmt.Errorf("the default %q is not JSON", value)
		}
	}
	return schema, def, nil
}
