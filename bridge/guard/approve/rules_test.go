package approve

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/setting"
)

func TestRules(t *testing.T) {
	o := Options{
		Rules: []Rule{
			{Tools: []string{"delete_*"}, Remember: "first"},
			{Tools: []string{"get", Destructive}, Remember: "second"},
			{Tools: []string{"*"}, Remember: "third"},
		},
		Annotations: map[string]map[string]json.RawMessage{
			"trusted": {"destructiveHint": json.RawMessage("false")},
			"feared":  {"destructiveHint": json.RawMessage("true")},
			"cleared": {"readOnlyHint": json.RawMessage("null")},
		},
	}
	for _, tc := range []struct{ tool, annotations, want string }{
		{"delete_all", `{"readOnlyHint":true}`, "first"},
		{"get", `{"readOnlyHint":true}`, "second"},
		{"x", ``, "second"}, // by the protocol, a tool without hints may destroy
		{"x", `{}`, "second"},
		{"x", `{"readOnlyHint":"true"}`, "second"},
		{"x", `{"readOnlyHint":true}`, "third"},
		{"x", `{"destructiveHint":false}`, "third"},
		{"x", `{"readOnlyHint":true,"destructiveHint":true}`, "second"},
		{"x", `{"destructiveHint":false,"destructiveHint":true}`, "second"},
		{"trusted", `{"destructiveHint":true}`, "third"},
		{"feared", `{"readOnlyHint":true}`, "second"},
		{"cleared", `{"readOnlyHint":true}`, "second"},
		{Destructive, `{"readOnlyHint":true}`, "third"}, // the word is no pattern
	} {
		if r := o.of(tc.tool, func() bool { return o.destroys(tc.tool, tc.annotations) }); r.Remember != tc.want {
			t.Errorf("%s with %s: the rule %s, want the %s", tc.tool, tc.annotations, r.Remember, tc.want)
		}
	}
	o.Rules = o.Rules[:2]
	if r := o.of("x", func() bool { return false }); r != nil {
		t.Errorf("a rule for a tool that none names: %+v", r)
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		want string // the beginning of the error; empty for none
	}{
		{Rule{Tools: []string{"*"}}, ""},
		{Rule{Tools: []string{"*"}, Ask: []string{"console", "client"}, Timeout: 10 * time.Minute, Remember: "session"}, ""},
		{Rule{}, "approve: item 1: tools is empty"},
		{Rule{Tools: []string{"*"}, Ask: []string{"user"}}, `approve: item 1: ask is "user": must be client or console`},
		{Rule{Tools: []string{"*"}, Ask: []string{"client", "client"}}, "approve: item 1: ask has client twice"},
		{Rule{Tools: []string{"*"}, Timeout: time.Hour}, "approve: item 1: timeout is 1h: must be 1s to 10m"},
		{Rule{Tools: []string{"*"}, Timeout: time.Millisecond}, "approve: item 1: timeout is 1ms: must be"},
		{Rule{Tools: []string{"*"}, Remember: "always"}, `approve: item 1: remember is "always"`},
	} {
		err := errors.Join(setting.Faults(&struct {
			Rules []Rule `yaml:"approve"`
		}{[]Rule{tc.rule}}, nil)...)
		if got := ""; err != nil {
			got = err.Error()
			if tc.want == "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%+v: %s, want %s", tc.rule, got, tc.want)
			}
		} else if tc.want != "" {
			t.Errorf("%+v: no error, want %s", tc.rule, tc.want)
		}
	}
}
