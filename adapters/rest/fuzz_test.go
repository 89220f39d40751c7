package rest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// Whatever a tool's request and body are, it is refused or callable; whatever an argument contains,
// it stays in its place.
func FuzzOwnTool(f *testing.F) {
	f.Add("POST /x/{a}{?b*}", `{"x":["{a}","{{a}} {b}"],"n":1.0}`, `","x":"`, "2")
	f.Add("GET /x?q={a}&b={b}", ``, "&c=d#e", "..")
	f.Add("PUT /{+a}/{;b}", `"{a}{b}"`, "{b}", "\x00\xff")
	f.Add("DELETE /{a}.{b", `{"":{"":"{b}"}}`, "", "null")
	f.Fuzz(func(t *testing.T, request, body, a, b string) {
		e := &toolset.Entry{Key: "t", Request: request, Args: []toolset.Arg{
			{Name: "a", Schema: json.RawMessage(`{"type":"string"}`)}, {Name: "b", Optional: true, Schema: json.RawMessage(`{"type":"string"}`)},
		}}
		if gjson.Valid(body) {
			e.Body = json.RawMessage(body)
		}
		one, faults := e.Build()
		if (one == nil) != (len(faults) > 0) {
			t.Fatalf("a tool %v and faults %v", one, faults)
		}
		if one == nil || one.Prepare == nil {
			return
		}
		a, b = strings.ToValidUTF8(a, "?"), strings.ToValidUTF8(b, "?")
		values, err := json.Marshal(map[string]string{"a": a, "b": b})
		if err != nil {
			t.Fatal(err)
		}
		given, err := one.Prepare(values)
		if err != nil || !gjson.ValidBytes(given) {
			t.Fatalf("arguments become %q", given)
		}
		plain, err := one.Prepare([]byte(`{"a":"x","b":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shape(gjson.GetBytes(given, toolset.BodyArg)), shape(gjson.GetBytes(plain, toolset.BodyArg)); got != want {
			t.Errorf("the body is %s with %q and %q, and %s otherwise", got, a, b, want)
		}
	})
}

// shape is JSON without its texts.
func shape(v gjson.Result) string {
	if !v.IsObject() && !v.IsArray() {
		return v.Type.String()
	}
	s := "("
	v.ForEach(func(k, one gjson.Result) bool {
		s += k.String() + ":" + shape(one) + ","
		return true
	})
	return s + ")"
}
