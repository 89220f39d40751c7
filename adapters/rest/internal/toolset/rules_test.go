package toolset_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// TestRuleset: of several rules the last counts, and what an entry says itself wins.
func TestRuleset(t *testing.T) {
	doc, tools := imported(t)
	orders := openapi.Match{Tag: []string{"orders"}}
	no := false
	rules := []toolset.Rule{
		{Match: orders, Entry: toolset.Entry{Name: "shop_{name}", Timeout: 5 * time.Second, Attempts: 5, Lines: map[string]int{"timeout": 1}, Args: []toolset.Arg{{Name: "x-tenant", Off: true}}}},
		{Match: openapi.Match{Name: []string{"list*"}}, Entry: toolset.Entry{Name: "l.{name}", Timeout: 7 * time.Second, Result: "data", Lines: map[string]int{"timeout": 2}}},
		{Match: openapi.Match{Name: []string{"addOrder"}}, Entry: toolset.Entry{Writes: &no}},
	}
	set := toolset.NewRuleset(rules)
	for _, test := range []struct {
		tool   string
		own    *toolset.Entry
		want   string // timeout and its line, attempts, result, and whether only rules speak of it
		shared string
	}{
		{"listOrders", nil, "7s 2 5 data true", "X-Tenant"},
		{"listOrders", &toolset.Entry{Timeout: time.Second, Lines: map[string]int{"timeout": 9}}, "1s 9 5 data false", "X-Tenant"},
		{"addOrder", nil, "5s 1 5  true", "X-Tenant"}, // writes: false allows retries
		{"cancel", nil, "", ""},
	} {
		var shared toolset.Shared
		got := ""
		if e := set.Apply(tools[test.tool], test.own, &shared); e != nil {
			got = fmt.Sprint(e.Timeout, e.Lines["timeout"], e.Attempts, " ", e.Result, " ", e.Ruled)
		}
		args := ""
		for _, a := range shared.Args {
			args += a.Name
		}
		if got != test.want || args != test.shared {
			t.Errorf("%s: %s with %s, want %s with %s", test.tool, got, args, test.want, test.shared)
		}
	}
	if faults := set.Unused(doc); len(faults) > 0 {
		t.Error(faults)
	}
	// retry applies to operations that another rule declares harmless, in either order.
	post, yes := openapi.Match{Name: []string{"addOrder"}}, true
	reads, retry, writes := rules[2], toolset.Rule{Match: post, Entry: toolset.Entry{Attempts: 5}}, toolset.Rule{Match: post, Entry: toolset.Entry{Writes: &yes}}
	for _, test := range []struct {
		rules []toolset.Rule
		want  int
	}{
		{[]toolset.Rule{reads, retry}, 5},
		{[]toolset.Rule{retry, reads}, 5},
		{[]toolset.Rule{retry}, 0},
		{[]toolset.Rule{reads, retry, writes}, 0}, // the last counts
	} {
		if got := toolset.NewRuleset(test.rules).Apply(tools["addOrder"], nil, &toolset.Shared{}); got.Attempts != test.want {
			t.Errorf("%+v: %d attempts, want %d", test.rules, got.Attempts, test.want)
		}
	}
	for name, want := range map[string]string{"listOrders": "l.x", "addOrder": "shop_x", "cancel": "x"} {
		if got := toolset.Rename(rules, tools[name].Operation, "x"); got != want {
			t.Errorf("Rename(%s) = %s, want %s", name, got, want)
		}
	}
}

// TestRulesUnused reports rules that match nothing, with what was probably meant.
func TestRulesUnused(t *testing.T) {
	doc, tools := imported(t)
	yes := true
	lines := map[string]int{"match": 11, "as": 12, "cache": 13}
	for _, test := range []struct {
		rule toolset.Rule
		line int
		want string
	}{
		{toolset.Rule{Match: openapi.Match{Tag: []string{"order"}}}, 11, "rules: item 1: no exposed operation matches it: did you mean orders?"},
		{toolset.Rule{Match: openapi.Match{Tag: []string{"orders"}, Method: []string{"DELETE"}}}, 11, "rules: item 1: no exposed operation matches it"},
		{toolset.Rule{Match: openapi.Match{Name: []string{"listOrder"}}}, 11, "rules: item 1: no exposed operation matches it: did you mean listOrders?"},
		{toolset.Rule{Match: openapi.Match{Name: []string{"cancel"}}, Entry: toolset.Entry{Args: []toolset.Arg{{Name: "page", Line: 14}}}}, 14, "rules: item 1: args: page: no operation that the rule fits has a parameter of that name"},
		{toolset.Rule{Match: openapi.Match{Name: []string{"cancel"}}, Entry: toolset.Entry{Cache: &yes}}, 13, "rules: item 1: cache is for GET, and the rule matches no GET"},
		{toolset.Rule{Match: openapi.Match{Name: []string{"cancel"}}, Entry: toolset.Entry{As: toolset.AsResource}}, 12, "rules: item 1: as: resource is for GET, and the rule matches no GET"},
		{toolset.Rule{Match: openapi.Match{Name: []string{"cancel"}}, Entry: toolset.Entry{Args: []toolset.Arg{{Name: "ids", Line: 14}}}}, 14, "rules: item 1: args: ids: no operation that the rule fits has a parameter of that name: did you mean id?"},
	} {
		test.rule.Entry.Lines = lines
		set := toolset.NewRuleset([]toolset.Rule{test.rule})
		for _, tool := range tools {
			set.Apply(tool, nil, &toolset.Shared{})
		}
		if got := set.Unused(doc); got.Error() != test.want || got[0].Line != test.line {
			t.Errorf("%+v\nwant %s, line %d", got, test.want, test.line)
		}
	}
}

// TestRuleFaultsWithoutDocument finds faults of rules before a document is read.
func TestRuleFaultsWithoutDocument(t *testing.T) {
	all := openapi.Match{Path: []string{"**"}}
	for _, test := range []struct {
		rule toolset.Rule
		want string // empty: none
	}{
		{toolset.Rule{Match: all, Entry: toolset.Entry{Name: "a_{name}"}}, ""},
		{toolset.Rule{Match: all}, "rules: item 1: has no settings"},
		{toolset.Rule{Entry: toolset.Entry{Timeout: 1}}, "rules: item 1: match needs tag, path, method or name"},
		{toolset.Rule{Match: all, Entry: toolset.Entry{Name: "a"}}, "rules: item 1: name must have {name} in it"},
		{toolset.Rule{Match: all, Entry: toolset.Entry{Name: "{name}!"}}, "rules: item 1: name must have {name} in it"},
		{toolset.Rule{Match: all, Entry: toolset.Entry{Timeout: -1}}, "rules: item 1: timeout is -1ns: must not be negative"},
		{toolset.Rule{Match: all, Entry: toolset.Entry{Args: []toolset.Arg{{Name: "a", Optional: true}}}}, "rules: item 1: args: a: the ? is for added arguments"},
	} {
		if got := toolset.RuleFaults([]toolset.Rule{test.rule}).Error(); got != test.want && (test.want == "" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	lines := toolset.RuleLines([]toolset.Rule{{Entry: toolset.Entry{Lines: map[string]int{"name": 4}}}, {Entry: toolset.Entry{Args: []toolset.Arg{{Line: 8}, {}}}}})
	if want := map[int]int{4: 1, 8: 2}; !maps.Equal(lines, want) {
		t.Errorf("RuleLines() = %v, want %v", lines, want)
	}
}

// TestCommon: an entry for all operations matches parameters, by the name of each.
func TestCommon(t *testing.T) {
	_, tools := imported(t)
	common := toolset.NewCommon([]toolset.Arg{{Name: "x-tenant", Value: json.RawMessage(`"a"`)}, {Name: "Page", Off: true, Line: 7}, {Name: "item", Line: 8}})
	for name, want := range map[string]string{"listOrders": "X-Tenant true false", "addOrder": "X-Tenant true false", "cancel": "false true"} {
		shared := common.Of(tools[name], nil)
		got := ""
		for _, a := range shared.Args {
			got += a.Name + " "
		}
		if got += fmt.Sprint(shared.Confines(), " ", shared.Empty()); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	want := "args: Page: no operation that is exposed has a parameter of that name: did you mean page?\nargs: item: no operation that is exposed has a parameter of that name"
	unused := common.Unused()
	if unused.Error() != want || unused[0].Line != 7 {
		t.Errorf("Unused() = %v\nwant %s", unused, want)
	}
	own := (&toolset.Entry{Key: "a"}).Fault("x")
	first := len(common.Unreported(toolset.Faults{unused[0], own}))
	if again := len(common.Unreported(toolset.Faults{unused[0], own})); first != 2 || again != 1 {
		t.Errorf("%d faults are news, and %d the second time; want 2 and 1", first, again)
	}
}

// TestArgFaults finds faults of args before a document is read.
func TestArgFaults(t *testing.T) {
	got := toolset.ArgFaults([]toolset.Arg{
		{Name: "ok", As: "fine", About: "x"}, {Name: "a", Off: true, About: "x"}, {Name: "a"}, {Name: "b", Optional: true}, {Name: "c", As: "no good"},
		{Name: "d", Schema: json.RawMessage(`{"type":"strng"}`)},
	})
	want := []string{
		"args: a: clients do not see it: remove its other settings", "args: a: is given twice",
		"args: b: the ? is for added arguments: the document says what is required",
		"args: c: as must have 1 to 64 letters, digits, '_', '.' and '-'", "args: d: is not a valid JSON Schema: ",
	}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s, want %s", got[i], want[i])
		}
	}
}
