package toolset

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Rule changes all operations that it matches, as an Entry changes one. For each setting, the last
// matching rule that has it wins. The setting of an operation's own entry wins over rules.
type Rule struct {
	// Match selects the operations.
	Match openapi.Match
	// Entry has the settings. Result, Error, ErrorIf, Timeout, Attempts, Cache, KeepFor, Limits,
	// As, Writes and Output apply to each matched operation that can have the setting. Args apply
	// to parameters, as Config.Args do. Name is a template with {name}. Other fields are ignored.
	Entry Entry
}

// ruleName returns how messages name the rule with index i.
func ruleName(i int) string { return fmt.Sprintf("rules: item %d: ", i+1) }

// RuleFaults returns the faults of rules that can be found without a document.
func RuleFaults(rules []Rule) Faults {
	var faults Faults
	for i := range rules {
		r := &rules[i]
		add := func(line int, text string) {
			faults = append(faults, Fault{
				Key:    ruleName(i),
				Line:   line,
				Text:   text,
				common: true,
			})
		}
		e := &r.Entry
		if why := r.Match.Fault(); why != "" {
			add(e.LineOf("match"), why)
		}
		if e.Name != "" && (!strings.Contains(e.Name, namePart) || !plainName.MatchString(strings.ReplaceAll(e.Name, namePart, "x"))) {
			add(e.LineOf("name"), `name must have {name} in it, such as "shop_{name}", and otherwise letters, digits, '_', '.' and '-'`)
		}
		for _, f := range e.BoundFaults() {
			add(f.Line, f.Text)
		}
		for _, text := range ArgFaults(e.Args) {
			add(e.LineOf("args"), text)
		}
		if !e.hasSettings() {
			add(e.Line, "has no settings: add name, args, as, output, timeout, retry, cache, limits, result, error or writes")
		}
	}
	return faults
}

// ruleSettings are the settings that rules give to entries. An earlier one is taken from all rules before
// the later ones: retry depends on writes.
var ruleSettings = []struct {
	key  string
	has  func(e *Entry) bool
	take func(e, from *Entry)
	fits func(e *Entry, from *Entry, op *openapi.Operation) bool // nil: the setting fits all operations
}{
	{"writes", func(e *Entry) bool { return e.Writes != nil }, func(e, from *Entry) { e.Writes = from.Writes }, nil},
	{"output", func(e *Entry) bool { return e.Output != nil }, func(e, from *Entry) { e.Output = from.Output }, nil},
	{"result", func(e *Entry) bool { return e.Result != "" }, func(e, from *Entry) { e.Result = from.Result }, nil},
	{"error", func(e *Entry) bool { return e.Error+e.ErrorIf != "" }, func(e, from *Entry) { e.Error, e.ErrorIf = from.Error, from.ErrorIf }, nil},
	{"timeout", func(e *Entry) bool { return e.Timeout != 0 }, func(e, from *Entry) { e.Timeout = from.Timeout }, nil},
	{"retry", func(e *Entry) bool { return e.Attempts != 0 }, func(e, from *Entry) { e.Attempts = from.Attempts }, retries},
	{"cache", func(e *Entry) bool { return e.Cache != nil }, func(e, from *Entry) { e.Cache, e.KeepFor = from.Cache, from.KeepFor }, isGet},
	{"as", func(e *Entry) bool { return e.As != "" }, func(e, from *Entry) { e.As = from.As }, isGet},
	{"limits", func(e *Entry) bool { return e.Limits != (ToolLimits{}) }, func(e, from *Entry) { e.Limits = from.Limits }, nil},
}

func isGet(_, _ *Entry, op *openapi.Operation) bool { return op.Method == http.MethodGet }

// retries reports whether requests of an operation may be sent as often as the rule's entry, from, says.
func retries(e, from *Entry, op *openapi.Operation) bool {
	return from.Attempts == 1 || wire.Idempotent(op.Method) || e.SendsKey(op) || e.Writes != nil && !*e.Writes
}

// hasSettings reports whether a rule changes anything.
func (e *Entry) hasSettings() bool {
	for _, s := range ruleSettings {
		if s.has(e) {
			return true
		}
	}
	return e.Name != "" || len(e.Args) > 0
}

// namePart stands for the tool's original name in the Name of a rule.
const namePart = "{name}"

// Rename returns the name that the last matching rule with a Name gives an operation's tool, or name
// if there is no such rule.
func Rename(rules []Rule, op *openapi.Operation, name string) string {
	for _, r := range slices.Backward(rules) {
		if r.Entry.Name != "" && r.Match.Matches(op) {
			return strings.ReplaceAll(r.Entry.Name, namePart, name)
		}
	}
	return name
}

// Ruleset applies rules to the tools of a document.
type Ruleset struct {
	rules         []Rule
	args          []*Common
	matches, gets []int // by rule: how many operations it matches, and how many of those are GETs
}

func NewRuleset(rules []Rule) *Ruleset {
	r := &Ruleset{
		rules:   rules,
		matches: make([]int, len(rules)),
		gets:    make([]int, len(rules)),
	}
	for i := range rules {
		r.args = append(r.args, newCommon(rules[i].Entry.Args, ruleName(i)))
	}
	return r
}

// Apply returns a tool's own entry, which may be nil, with the settings of matching rules. The result
// is nil if there are neither. Apply puts the rules' Args into shared, where they replace settings
// for the same argument.
func (r *Ruleset) Apply(t *openapi.Tool, own *Entry, shared *Shared) *Entry {
	out := own
	var fit []*Entry // the last rule first
	for i, rule := range slices.Backward(r.rules) {
		op := t.Operation
		if !rule.Match.Matches(op) {
			continue
		}
		r.matches[i]++
		if op.Method == http.MethodGet {
			r.gets[i]++
		}
		if out == nil {
			out = &Entry{Key: op.Key(), Ruled: true}
		} else if out == own {
			copied := *own
			out = &copied
		}
		out.Lines = maps.Clone(out.Lines)
		if out.Lines == nil {
			out.Lines = map[string]int{}
		}
		fit = append(fit, &r.rules[i].Entry)
	}
	if len(fit) > 0 {
		out.take(fit, t.Operation)
	}
	for i, item := range r.rules {
		if !item.Match.Matches(t.Operation) {
			continue
		}
		for _, a := range r.args[i].Of(t, nil).Args {
			shared.Args = slices.DeleteFunc(shared.Args, func(one Arg) bool { return one.Name == a.Name })
			shared.Args = append(shared.Args, a)
		}
	}
	return out
}

// take copies each setting that the entry lacks and the operation allows from the first of the rules'
// entries, fit, that has it, with the lines of its key.
func (e *Entry) take(fit []*Entry, op *openapi.Operation) {
	for _, s := range ruleSettings {
		for _, from := range fit {
			if s.has(e) || !s.has(from) || s.fits != nil && !s.fits(e, from, op) {
				continue
			}
			s.take(e, from)
			for name, line := range from.Lines {
				if name == s.key || strings.HasPrefix(name, s.key+": ") {
					e.Lines[name] = line
				}
			}
		}
	}
	for _, from := range fit { // package openapi sets the name
		if _, named := e.Lines["name"]; from.Name != "" && e.Name == "" && !named {
			e.Lines["name"] = from.Lines["name"]
		}
	}
}

// Unused returns faults for rules that match no operation, and for settings that apply to none of
// the matched operations.
func (r *Ruleset) Unused(doc *openapi.Document) Faults {
	var faults Faults
	for i := range r.rules {
		rule := &r.rules[i]
		add := func(key, format string, args ...any) {
			faults = append(faults, Fault{
				Key:    ruleName(i),
				Line:   rule.Entry.LineOf(key),
				Text:   fmt.Sprintf(format, args...),
				common: true,
			})
		}
		if r.matches[i] == 0 {
			add("match", "no exposed operation matches it%s", rule.hint(doc))
			continue
		}
		if r.gets[i] == 0 && rule.Entry.As == AsResource {
			add("as", "as: resource is for GET, and the rule matches no GET")
		}
		if r.gets[i] == 0 && rule.Entry.Cache != nil {
			add("cache", "cache is for GET, and the rule matches no GET")
		}
		faults = append(faults, r.args[i].Unused()...)
	}
	return faults
}

// ExposeFaults returns faults for rules of expose that exclude operations and match none. If such a
// rule were no error, clients could call the operations that the operator wanted to exclude.
func ExposeFaults(doc *openapi.Document, expose openapi.Rules) Faults {
	var faults Faults
	var known []string
	for _, op := range doc.Operations {
		if op.ID != "" {
			known = append(known, op.ID)
		}
		for _, tag := range op.Tags {
			known = append(known, "tag "+tag)
		}
	}
	for _, text := range expose.Idle(doc) {
		f := Fault{
			Key:    "expose: ",
			Text:   fmt.Sprintf("%.200q matches no operation, so it excludes none", text),
			common: true,
		}
		if near := validate.Nearest(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "not ")), known); near != "" {
			f.Text += ": did you mean " + strconv.Quote("not "+near) + "?"
		}
		faults = append(faults, f)
	}
	return faults
}

// hint returns a question with the tag or the name that the operator probably meant, or "".
func (r *Rule) hint(doc *openapi.Document) string {
	tags, names := doc.Known()
	for _, part := range []struct{ said, known []string }{{r.Match.Tag, tags}, {r.Match.Name, names}} {
		for _, said := range part.said {
			if near := validate.Nearest(said, part.known); near != "" && near != said {
				return ": did you mean " + near + "?"
			}
		}
	}
	return ""
}

// RuleLines maps lines of the configuration to the numbers of their rules, counted from 1.
func RuleLines(rules []Rule) map[int]int {
	all := map[int]int{}
	for i := range rules {
		for _, line := range rules[i].Entry.Lines {
			all[line] = i + 1
		}
		for _, a := range rules[i].Entry.Args {
			all[a.Line] = i + 1
		}
	}
	delete(all, 0)
	return all
}
