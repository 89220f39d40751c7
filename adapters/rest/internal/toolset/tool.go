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

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Entry is an entry of Config.Tools. An Entry with a Request is a tool of its own. Others change a tool
// of the document.
type Entry struct {
	// Key is an operationId, or METHOD and path as in the document. For a tool of its own, Key is
	// the tool's name unless Name is set.
	Key  string
	Line int // in the configuration; 0 for an entry made by a program
	// Lines has the line of each key of the entry. The name of an inner key begins with those of
	// the outer ones, such as "limits: answer".
	Lines map[string]int
	// Off removes an operation.
	Off bool
	// Name, Title and About are the texts for clients. Empty keeps the document's.
	Name, Title, About string
	// Request is a method and a template (RFC 6570) of the path and the query,
	// such as GET /forecast/{city}{?days,units}.
	Request string
	// Args are new arguments, and changes to those of the operation.
	Args []Arg
	// Body is JSON with placeholders. A string that is only {arg} becomes the argument's JSON; within
	// other text, {arg} becomes the argument's text.
	Body json.RawMessage
	// Headers has a template of text for each header.
	Headers map[string]string
	// Query is a JSON object with parameters for the query of an operation of the document. Its
	// values are templates like Body.
	Query json.RawMessage
	// Result is a gjson path to the part of an answer that is the result. Empty means all.
	Result string
	// Error is a gjson path to the message of an error answer. ErrorIf is a gjson path: an answer
	// with a success status is an error if its value there is not false, null, 0 or empty.
	Error, ErrorIf string
	// Timeout bounds a call with all its attempts. Attempts bounds how often the request of a call is
	// sent. 0 means the API's setting.
	Timeout  time.Duration
	Attempts int
	// Cache says whether answers are cached; nil means the API's setting. KeepFor is how long an
	// answer stays fresh if the answer does not say so itself.
	Cache   *bool
	KeepFor time.Duration
	// Limits bound the tool's answers.
	Limits ToolLimits
	// As is AsResource for a GET that is a resource, and otherwise "tool" or empty.
	As string
	// Writes says whether the tool changes anything. If it is nil, the method decides.
	Writes *bool
	// Output says whether the tool keeps the document's output schema; nil means yes.
	Output *bool
	// Ruled says that all settings are from rules: the configuration has no entry for the operation.
	Ruled bool

	harmless bool // the request may be repeated, whatever the method
}

// ToolLimits are the limits of one tool's calls. 0 means the API's limit.
type ToolLimits struct {
	Answer setting.Size `yaml:"answer"` // bounds the text of one result
}

// Arg is a new argument of a tool, or a change to one. An argument that the operation lacks is new
// if its schema has a type.
type Arg struct {
	Name     string // the API's name
	Line     int    // in the configuration; 0 for an argument made by a program
	Optional bool   // clients may omit the argument
	// Off removes an optional argument.
	Off bool
	// Value, unless nil, is always sent, and clients do not see the argument.
	Value json.RawMessage
	// As is the name that clients see; empty means Name.
	As string
	// About is the description.
	About string
	// Default is the default in the schema for clients. Templates of headers and query parameters
	// use it for a missing argument within other text.
	Default json.RawMessage
	// Schema is a JSON Schema. The members of a changed argument's Schema replace those in the
	// document's schema.
	Schema json.RawMessage

	where string // prefix of its faults: the rule that has the argument, or empty
}

// declares reports whether the argument's schema has a type, or a keyword in place of a type.
func (a *Arg) declares() bool {
	if string(a.Schema) == "{}" { // the type any
		return true
	}
	return slices.ContainsFunc([]string{"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}, func(key string) bool {
		return gjson.GetBytes(a.Schema, gjson.Escape(key)).Exists()
	})
}

// plainName is a name that every model provider accepts.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// unusable says why the argument's schema is invalid; empty if it is valid.
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

// Methods are the methods of requests, and whether they have bodies.
var Methods = map[string]bool{"GET": false, "HEAD": false, "OPTIONS": false, "DELETE": false, "POST": true, "PUT": true, "PATCH": true}

// types are the types of JSON Schema, without null.
var types = []string{"string", "integer", "number", "boolean", "object", "array"}

// ParseArg reads the short form of an argument's schema: a type, [type] for a list, or words
// separated by |. "= VALUE" at its end is the default.
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
		return nil, nil, fmt.Errorf("the type is missing: write one of %s, or words such as metric | imperial", strings.Join(types, ", "))
	}
	isText := false
	switch words := strings.Split(inner, "|"); {
	case len(words) > 1:
		for i := range words {
			if words[i] = strings.TrimSpace(words[i]); words[i] == "" {
				return nil, nil, fmt.Errorf("%q has an empty word", kind)
			}
		}
		enum, _ := json.Marshal(words) // marshalling strings cannot fail
		schema, isText = json.RawMessage(`{"type":"string","enum":`+string(enum)+`}`), true
	case inner == "any":
		schema = json.RawMessage(`{}`)
	case slices.Contains(types, inner):
		schema, isText = json.RawMessage(`{"type":"`+inner+`"}`), inner == "string"
		if inner == "array" {
			schema = json.RawMessage(`{"type":"array","items":{}}`)
		}
	default:
		return nil, nil, fmt.Errorf("%q is not a type: write one of %s, any, [type] for a list, or words such as metric | imperial", inner, strings.Join(types, ", "))
	}
	if list {
		schema, isText = json.RawMessage(`{"type":"array","items":`+string(schema)+`}`), false
	}
	if hasDefault {
		def = json.RawMessage(value)
		if isText {
			def, _ = json.Marshal(strings.Trim(value, `"`)) // marshalling a string cannot fail
		} else if !gjson.Valid(value) {
			return nil, nil, fmt.Errorf("the default %q is not JSON", value)
		}
	}
	return schema, def, nil
}

// Tool is a tool as clients see it, with what turns its calls into requests.
type Tool struct {
	*openapi.Tool
	// Call is the tool for package wire. If Prepare is set, Call has the Arguments of the request,
	// and its InputSchema, which package tools sets, is the one for clients.
	Call *openapi.Tool
	// Prepare, unless nil, turns the checked arguments of a client into those of the request.
	Prepare       func(args []byte) ([]byte, error)
	Result        string // gjson path to the part of an answer that is the result; empty means all
	Picks         bool   // the tool has PickArg
	OutputOmitted bool   // the tool has no output schema, since the list was too long
	Entry         *Entry // the tool's entry in the configuration, or nil
	Published     *Entry // the tool's entry in a catalogue, or nil
	// Hidden maps each argument whose place the entry sets, and which clients do not see, to the
	// entry's key for the place: headers, query or body.
	Hidden map[string]string
	// Args are what the configuration says about the arguments, at most one Arg for each. Those of
	// Config.Args and rules come first. Filled is as in Shared.
	Args     []Arg
	Filled   map[string]string
	Settings wire.Settings
}

// Reads reports whether calls change nothing. If the configuration says nothing, the method decides.
// A hint of a document or a catalogue can make the result false, but not true: its author does not
// decide for the operator.
func (t *Tool) Reads() bool {
	if t.Entry != nil && t.Entry.Writes != nil {
		return !*t.Entry.Writes
	}
	return t.Annotations.ReadOnly && slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, t.Operation.Method)
}

// Shared are the settings for parameters of all operations, as they apply to one tool.
type Shared struct {
	Args []Arg // from Config.Args and the rules, with the tool's names of the arguments
	// Filled maps an argument to the key, headers or auth, that always sets the argument's place.
	Filled map[string]string
}

// Empty reports whether no settings apply.
func (s *Shared) Empty() bool { return len(s.Args) == 0 && len(s.Filled) == 0 }

// Confines reports whether the settings restrict the requests that clients can make.
func (s *Shared) Confines() bool { return slices.ContainsFunc(s.Args, Confines) }

// Confines reports whether an argument's setting hides the argument from clients.
func Confines(a Arg) bool { return a.Off || a.Value != nil }
