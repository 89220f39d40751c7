package subscribe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Wanted is written as it was read, without duplicates. An invalid list is reported.
func TestWanted(t *testing.T) {
	for _, test := range []struct{ params, raw, fault string }{
		{`{"notifications":{"taskIds":["t"],"x":true,"resourceSubscriptions":["a:","b:","a:"],"toolsListChanged":true,"promptsListChanged":false}}`,
			`{"toolsListChanged":true,"resourceSubscriptions":["a:","b:"],"taskIds":["t"]}`, ""},
		{`{"notifications":{"resourceSubscriptions":"a:","taskIds":["t"]}}`, `{"taskIds":["t"]}`, "resourceSubscriptions must be an array of strings"},
		{`{"notifications":{"taskIds":["t",1]}}`, `{}`, "taskIds must be an array of strings"},
		{`{"notifications":[]}`, `{}`, "params.notifications must be an object"},
		{`{"notifications":{"taskIds":["` + strings.Join(numbers(subscribe.MaxWanted+1), `","`) + `"]}}`, `{}`, "taskIds is too long (the limit is 256)"},
	} {
		w, fault := subscribe.ReadWanted([]byte(test.params))
		if got := string(w.Raw()); got != test.raw || (fault == "") != (test.fault == "") || !strings.Contains(fault, test.fault) {
			t.Errorf("%s: %s, %q", test.params, got, fault)
		}
	}
	m := subscribe.Narrowed([]byte(`{"_meta":{},"notifications":{"x":1,"taskIds":["a","b"]}}`), "taskIds", nil)
	if got := string(m.Params); m.Method != "subscriptions/listen" || got != `{"_meta":{},"notifications":{"x":1,"taskIds":[]}}` {
		t.Error(m.Method, got)
	}
	if m := subscribe.Updated(`a:"`); m.URI() != `a:"` {
		t.Errorf("%s is about %q", bridgetest.Text(m), m.URI())
	}
	if i := slices.IndexFunc(list.Announced[:], func(k list.Kind) bool { return k.Announces([]byte(`{"prompts":{"listChanged":true}}`)) }); i != int(list.Prompts) {
		t.Error("another kind announces changes than prompts")
	}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, strings.Repeat("i", i))
	}
	return all
}
