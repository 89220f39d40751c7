package arguments_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
)

// fixed, hidden, named and standard make the changes of one argument.
func fixed(name, value string) arguments.Change {
	return arguments.Change{Name: name, Value: json.RawMessage(value)}
}

func hidden(name string) arguments.Change { return arguments.Change{Name: name, Off: true} }

func named(name, as string) arguments.Change { return arguments.Change{Name: name, As: as} }

func standard(name, value string) arguments.Change {
	return arguments.Change{Name: name, Default: json.RawMessage(value)}
}

// Clients see no argument that the operator sets, and the others as the operator describes them.
func TestEdit(t *testing.T) {
	const issues = `{"type":"object","properties":{"repo":{"type":"string"},"region":{"enum":["eu","us"]},"path":true,"dry_run":{"type":"boolean"}},"required":["repo","region","path"],"additionalProperties":false}`
	for _, tc := range []struct {
		name, schema string
		changes      arguments.Changes
		want         string
	}{
		{"all of them", issues,
			arguments.Changes{fixed("repo", `"acme/x"`), standard("region", `"eu"`), {Name: "path", As: "folder", About: "Where"}, hidden("dry_run")},
			`{"type":"object","properties":{"region":{"enum":["eu","us"],"default":"eu"},"folder":{"description":"Where"}},"required":["folder"],"additionalProperties":false}`},
		{"nothing is required any more", `{"properties":{"a":{}},"required":["a"]}`, arguments.Changes{fixed("a", "1")}, `{"properties":{}}`},
		{"a default that the server has too", `{"properties":{"a":{"default":1}}}`, arguments.Changes{standard("a", `{"b":[1.0]}`)}, `{"properties":{"a":{"default":{"b":[1.0]}}}}`},
		{"members of its schema", `{"properties":{"a":{"type":"string"}}}`, arguments.Changes{{Name: "a", Schema: json.RawMessage(`{"maxLength":3}`)}}, `{"properties":{"a":{"type":"string","maxLength":3}}}`},
		{"names of JavaScript", `{"properties":{"__proto__":{},"constructor":{}},"required":["__proto__"]}`, arguments.Changes{fixed("__proto__", "1"), named("constructor", "then")}, `{"properties":{"then":{}}}`},
		{"an escaped name", `{"properties":{"a\u0062":{}},"required":["a\u0062"]}`, arguments.Changes{named("ab", "c")}, `{"properties":{"c":{}},"required":["c"]}`},
		{"branches that require what is declared at the top", `{"properties":{"a":{},"b":{},"c":{}},"oneOf":[{"required":["a"]},{"required":["b"]},true],"if":{"properties":{"b":{"const":1}}}}`,
			arguments.Changes{fixed("a", "1"), named("b", "x")},
			`{"properties":{"x":{},"c":{}},"oneOf":[{},{"required":["x"]},true],"if":{"properties":{"x":{"const":1}}}}`},
		{"a member of an argument", `{"properties":{"a":{"properties":{"repo":{}},"required":["repo"]}}}`, arguments.Changes{fixed("repo", "1")}, `{"properties":{"a":{"properties":{"repo":{}},"required":["repo"]}}}`},
		{"no object", "true", arguments.Changes{fixed("a", "1")}, "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(tc.changes.Edit([]byte(tc.schema))); got != tc.want {
				t.Errorf("Edit(%s) =\n%s, want\n%s", tc.schema, got, tc.want)
			}
		})
	}
}

// caller has a name and a claim.
func caller(reference string) (string, bool) {
	text, ok := map[string]string{"caller.name": `ann "a" \`, "caller.claims.tenant": "t-1"}[reference]
	return text, ok
}

// Only what the operator changes is changed, and nothing that a client sends evades it.
func TestFill(t *testing.T) {
	repo, path := fixed("repo", `"acme/x"`), named("path", "folder")
	for _, tc := range []struct {
		name    string
		changes arguments.Changes
		args    string
		want    string // the arguments for the server, or the refusal
	}{
		{"nothing", arguments.Changes{repo}, `{}`, `{"repo":"acme/x"}`},
		{"all of them", arguments.Changes{repo, standard("region", `"eu"`), path, hidden("dry_run")},
			`{ "n": 12345678901234567890, "folder" : "a\u0062", "x":1.50 }`,
			`{ "n": 12345678901234567890, "path" : "a\u0062", "x":1.50 ,"repo":"acme/x","region":"eu"}`},
		{"a default that the client overrides", arguments.Changes{standard("region", `"eu"`)}, `{"region":null}`, `{"region":null}`},
		{"a default within", arguments.Changes{{Name: "path", As: "folder", Default: json.RawMessage(`{"a":[{"b":1.0}]}`)}}, `{}`, `{"path":{"a":[{"b":1.0}]}}`},
		{"a renamed one in place of its default", arguments.Changes{{Name: "path", As: "folder", Default: json.RawMessage(`1`)}}, `{"folder":2}`, `{"path":2}`},
		{"an object", arguments.Changes{fixed("o", `{"a":{"b":[1,"x"]}}`)}, `{"z":1}`, `{"z":1,"o":{"a":{"b":[1,"x"]}}}`},
		{"null", arguments.Changes{fixed("o", "null")}, `{}`, `{"o":null}`},
		{"references", arguments.Changes{fixed("o", `{"who":"${caller.name}","of":["<${caller.claims.tenant}>","${name}","$$"]}`)}, `{}`,
			`{"o":{"who":"ann \"a\" \\","of":["<t-1>","${name}","$$"]}}`},
		{"names of JavaScript", arguments.Changes{fixed("__proto__", "1"), named("constructor", "then")}, `{"then":2}`, `{"constructor":2,"__proto__":1}`},
		{"a name with quotes", arguments.Changes{fixed(`a"b`, "1")}, `{}`, `{"a\"b":1}`},
		{"repeated", arguments.Changes{path}, `{"folder":1,"folder":2,"y":1,"y":2}`, `{"path":1,"path":2,"y":1,"y":2}`},
		{"an escaped new name", arguments.Changes{path}, `{"f\u006flder":1}`, `{"path":1}`},

		{"set by the client", arguments.Changes{repo}, `{"a":1,"repo":"evil/x"}`, `argument "repo": the operator of the bridge sets it, so leave it out`},
		{"repeated by the client", arguments.Changes{repo}, `{"repo":"acme/x","repo":"evil/x"}`, `argument "repo": the operator`},
		{"with an escape", arguments.Changes{repo}, `{"r\u0065po":"evil/x"}`, `argument "repo": the operator`},
		{"in another case", arguments.Changes{repo}, `{"Repo":"evil/x"}`, `argument "Repo": the operator`},
		{"hidden", arguments.Changes{hidden("dry_run")}, `{"dry_run":false}`, `argument "dry_run": the operator`},
		{"its old name", arguments.Changes{path}, `{"path":1}`, `argument "path" is called "folder" here`},
		{"both names", arguments.Changes{path}, `{"folder":1,"path":2}`, `argument "path" is called "folder" here`},
		{"no claim", arguments.Changes{fixed("o", `"${caller.claims.org}"`)}, `{}`, `argument "o": the operator of the bridge sets it to ${caller.claims.org}, which this caller lacks`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			edits, why := tc.changes.Fill([]byte(tc.args), caller)
			got := why
			if why == "" {
				got = string(jsonrpc.Apply([]byte(tc.args), edits))
			}
			if !strings.HasPrefix(got, tc.want) || why == "" && got != tc.want {
				t.Errorf("Fill(%s) =\n%s, want\n%s", tc.args, got, tc.want)
			}
			if _, wrong := json.Marshal(json.RawMessage(got)); why == "" && wrong != nil {
				t.Errorf("%s is no JSON: %v", got, wrong)
			}
		})
	}
}

// Fill without references leaves values as they are.
func TestFillLiteral(t *testing.T) {
	edits, why := arguments.Changes{fixed("a", `"${caller.name}"`)}.Fill([]byte(`{}`), nil)
	if got := string(jsonrpc.Apply([]byte(`{}`), edits)); why != "" || got != `{"a":"${caller.name}"}` {
		t.Errorf("got %s, %s", got, why)
	}
}

// A change that a tool cannot have is reported, and a tool without a promised value must not be called. Even then,
// clients must not send what the operator sets.
func TestFit(t *testing.T) {
	loose := func(c arguments.Change) arguments.Change {
		c.Loose = true
		return c
	}
	const declared = `{"type":"object","properties":{"repo":{},"path":{},"folder":{}},"required":["repo"]}`
	for _, tc := range []struct {
		name, schema string
		change       arguments.Change
		want         string // the fault; empty if it fits
		broken       bool
		sent         string // what comes of arguments with the name; empty if they are refused
	}{
		{"it fits", declared, fixed("repo", "1"), "", false, ""},
		{"a default", declared, standard("repo", "1"), "", false, `{"repo":7}`},
		{"a wrong name", declared, fixed("rep", "1"), "is not declared at the top of the tool's input schema: did you mean repo?", true, ""},
		{"a wrong name of a default", declared, standard("rep", "1"), "is not declared at the top", false, `{"rep":7}`},
		{"required and hidden", declared, hidden("repo"), "is required: it cannot be hidden; give it a value", true, ""},
		{"hidden, and not there", declared, hidden("x"), "is not declared at the top", false, ""},
		{"a name that another one has", declared, named("path", "folder"), "folder is the name of another argument", false, `{"path":7}`},
		{"within a branch", `{"type":"object","oneOf":[{"properties":{"repo":{}}},{}]}`, fixed("repo", "1"), "is not declared at the top", true, ""},
		{"no object", `{"anyOf":[{"type":"object","properties":{"repo":{}}}]}`, fixed("repo", "1"), "is not declared at the top", true, ""},
		{"a reference", `{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"repo":{}}}}}`, fixed("repo", "1"), "is not declared at the top", true, ""},
		{"true", `true`, standard("repo", "1"), "is not declared at the top", false, `{"repo":7}`},
		{"no schema", ``, fixed("repo", "1"), "is not declared at the top", true, ""},

		{"of many tools, and it fits", declared, loose(fixed("repo", "1")), "", false, ""},
		{"of many tools, and not there", declared, loose(fixed("x", "1")), "", false, ""},
		{"a default of many tools, and not there", declared, loose(standard("x", "1")), "", false, `{"x":7}`},
		{"of many tools, and perhaps in a branch", `{"properties":{},"anyOf":[{"properties":{"repo":{}}}]}`, loose(fixed("repo", "1")), "is not declared at the top", true, ""},
		{"of many tools, and not in the branch", `{"properties":{},"anyOf":[{"properties":{"org":{}}}]}`, loose(fixed("repo", "1")), "", false, ""},
		{"of many tools, and the member of an argument", `{"properties":{"o":{"properties":{"repo":{}}}}}`, loose(fixed("repo", "1")), "", false, ""},
		{"of many tools, and no schema", ``, loose(fixed("repo", "1")), "is not declared at the top", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fit, faults := arguments.Changes{tc.change}.Fit([]byte(tc.schema))
			got, broken := "", false
			for _, f := range faults {
				got, broken = got+f.Text, broken || f.Broken
				if f.Name != tc.change.Name {
					t.Errorf("the fault is about %s", f.Name)
				}
			}
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") || broken != tc.broken {
				t.Errorf("Fit(%s): %q, broken %t, want %q, %t", tc.schema, got, broken, tc.want, tc.broken)
			}
			args := []byte(`{"` + tc.change.Name + `":7}`)
			edits, why := fit.Fill(args, nil)
			if sent := string(jsonrpc.Apply(args, edits)); (why == "") != (tc.sent != "") || why == "" && sent != tc.sent {
				t.Errorf("%s are sent as %s, %q, want %s", args, sent, why, tc.sent)
			}
		})
	}
	two := arguments.Changes{named("a", "x"), named("b", "x")}
	if fit, faults := two.Fit([]byte(`{"properties":{"a":{},"b":{}}}`)); len(fit) != 1 || len(faults) != 1 || faults[0].Text != "gets the same name as a" {
		t.Errorf("of two with the same new name %v remain, faults %v", fit, faults)
	}
}

// Operators see the message without the values that they have set, and with those of clients.
func TestShown(t *testing.T) {
	m := jsonrpc.NewRequest("tools/call", []byte(`{"name":"x","arguments":{"folder":"a"}}`))
	at := strings.Index(string(m.Params), `{"folder`)
	edits, _ := arguments.Changes{fixed("key", `"s3cr3t"`), standard("region", `"eu"`), named("path", "folder")}.Fill(m.Params[at:len(m.Params)-1], nil)
	for i := range edits {
		edits[i].From, edits[i].To = edits[i].From+at, edits[i].To+at
	}
	m = m.Edited(edits...)
	if got, want := string(m.Whole()), `{"name":"x","arguments":{"path":"a","key":"s3cr3t","region":"eu"}}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	if got, want := string(m.Shown()), `{"name":"x","arguments":{"path":"a","key":"[redacted]","region":"eu"}}`; got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
}

// The name of a tool counts before patterns, a longer pattern before a shorter one: for each argument by itself.
func TestOf(t *testing.T) {
	o := arguments.Overrides{
		"get_issue": {"a": named("", "name")},
		"get_*":     {"a": named("", "long"), "b": named("", "long")},
		"*":         {"a": named("", "short"), "b": named("", "short"), "c": named("", "short")},
		"set_?":     {"d": named("", "other")},
	}
	for tool, want := range map[string]string{
		"get_issue": "a=name b=long~ c=short~", "get_repo": "a=long~ b=long~ c=short~", "set_x": "d=other~ a=short~ b=short~ c=short~", "Get_x": "a=short~ b=short~ c=short~",
		"*": "a=short b=short c=short",
	} {
		var got []string
		for _, one := range o.Of(tool) {
			got = append(got, one.Name+"="+one.As+map[bool]string{true: "~"}[one.Loose])
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("Of(%s) = %s, want %s", tool, text, want)
		}
	}
}
