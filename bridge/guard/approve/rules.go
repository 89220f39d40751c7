package approve

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Destructive stands in Rule.Tools for the tools that may destroy something: all but those whose annotations say
// destructiveHint: false, or readOnlyHint: true without destructiveHint: true.
const Destructive = "destructive"

// AskClient and AskConsole are the values of Rule.Ask.
const (
	AskClient  = "client"  // the person at the client, by an elicitation
	AskConsole = "console" // an operator
)

// RememberSession is a value of Rule.Remember.
const RememberSession = "session"

// Rule names tools whose calls need a person's yes.
type Rule struct {
	// Tools are patterns for the server's own names of tools, or Destructive. At least one.
	Tools []string `yaml:"tools"`
	// Ask lists who is asked: AskClient, AskConsole, or both. The first of them that can be asked decides. Default: both,
	// the client first.
	Ask []string `yaml:"ask" one_of:"client console" usually:"client, console"`
	// Timeout is how long the bridge waits for the decision. Then the answer is no. At most 10m. Default 5m.
	Timeout time.Duration `yaml:"timeout" default:"5m" min:"1s" max:"10m"`
	// Remember lets the person allow further calls of the tool: with RememberSession for the rest of the session, or
	// until the tool's definition changes. Default: each call is asked about.
	Remember string `yaml:"remember" one_of:"session"`
}

// Validate returns the faults that the tags do not find.
func (r *Rule) Validate() error {
	var errs []error
	if len(r.Tools) == 0 {
		errs = append(errs, fmt.Errorf("tools is empty: name tools, or write [%s]", Destructive))
	}
	for i, who := range r.Ask {
		if slices.Index(r.Ask, who) < i {
			errs = append(errs, fmt.Errorf("ask has %s twice", who))
		}
	}
	return errors.Join(errs...)
}

// asks returns who is asked, in this order.
func (r *Rule) asks() []string {
	if len(r.Ask) == 0 {
		return []string{AskClient, AskConsole}
	}
	return r.Ask
}

// names reports whether a pattern of the rule matches the tool.
func (r *Rule) names(tool string) bool {
	return slices.ContainsFunc(r.Tools, func(p string) bool { return p != Destructive && glob.Match(p, tool) })
}

// Options hold what the operator sets for one server. The zero value lets each call pass.
type Options struct {
	// Rules are the rules of the server. For a tool that several rules name, the first of them counts.
	Rules []Rule
	// Annotations are the operator's annotations of tools, by the server's own names. They replace those of the server.
	Annotations map[string]map[string]json.RawMessage
}

// of returns the first rule for a tool, or nil. destroys is called at most once. It reports whether the tool may destroy
// something.
func (o *Options) of(tool string, destroys func() bool) *Rule {
	known, may := false, false
	for i := range o.Rules {
		r := &o.Rules[i]
		if r.names(tool) {
			return r
		}
		if !slices.Contains(r.Tools, Destructive) {
			continue
		}
		if !known {
			known, may = true, destroys()
		}
		if may {
			return r
		}
	}
	return nil
}

// destroys reports whether a tool with these annotations of the server may destroy something. By the protocol, a tool
// without annotations may (2025-11-25, ToolAnnotations).
func (o *Options) destroys(tool, annotations string) bool {
	a := []byte(annotations)
	mine := o.Annotations[tool]
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		a = rawjson.Set(a, name, mine[name])
	}
	var reads, spares, destroys bool
	rawjson.Each(a, func(name, value []byte) {
		switch string(name) {
		case "readOnlyHint":
			reads = string(value) == "true"
		case "destructiveHint":
			spares = string(value) == "false"
			destroys = destroys || string(value) == "true"
		}
	})
	return destroys || !spares && !reads
}
