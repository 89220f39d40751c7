package toolset_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// placed writes the arguments of a request with their places.
func placed(call *openapi.Tool) string {
	var all []string
	for _, a := range call.Arguments {
		one := a.Name + "@" + string(a.Place)
		if a.Field != "" {
			one += "." + a.Field
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

// TestBuild makes tools of entries with a request.
func TestBuild(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, test := range []struct {
		name         string
		entry        toolset.Entry
		path, places string // of the request
		given, want  string // arguments before and after Prepare; the same when there is none
		refused      string
	}{
		{
			name: "path and query", entry: toolset.Entry{Request: "GET /c/{city}{?days,units*}&q={q}&sort=name", Args: args(t, "city string", "days? integer", "units? [string]", "q? string")},
			path: "/c/{city}?sort=name", places: "city@path days@query units@query q@query",
		},
		{name: "left over in a GET", entry: toolset.Entry{Request: "GET /s", Args: args(t, "q string")}, path: "/s", places: "q@query"},
		{name: "left over in a POST", entry: toolset.Entry{Request: "POST /s", Args: args(t, "q string")}, path: "/s", places: "q@body.q"},
		{
			name: "a value", entry: toolset.Entry{Request: "GET /s{?a,b}", Args: []toolset.Arg{{Name: "a", Value: raw(`"x"`)}, args(t, "b string")[0]}},
			path: "/s", places: "a@query b@query", given: `{"a":"mine","b":"y"}`, want: `{"b":"y","a":"x"}`,
		},
		{
			name: "a body", entry: toolset.Entry{Request: "PUT /s", Args: args(t, "a string", "b? integer"), Body: raw(`{"x":["{a}-{b}"],"n":"{b}","k":1.50}`)},
			path: "/s", places: ":body@body", given: `{"a":"v"}`, want: `{"a":"v",":body":{"x":["v-"],"k":1.50}}`,
		},
		{
			name: "a body that clients cannot give", entry: toolset.Entry{Request: "PUT /s", Args: args(t, "a string"), Body: raw(`"{a}"`)},
			path: "/s", places: ":body@body", given: `{"a":"v",":body":"mine"}`, want: `{"a":"v",":body":"v"}`,
		},
		{
			name: "headers", entry: toolset.Entry{Request: "GET /s", Args: args(t, "a string", "b? string = d"), Headers: map[string]string{"X-B": "{a}/{b}", "X-A": "{b}"}},
			path: "/s", places: ":header:X-A@header :header:X-B@header", given: `{"a":"v",":header:X-B":"mine"}`, want: `{"a":"v",":header:X-B":"v/d"}`,
		},
		{
			name: "a header with a line break", entry: toolset.Entry{Request: "GET /s", Args: args(t, "a string"), Headers: map[string]string{"X-A": "{a}"}},
			path: "/s", places: ":header:X-A@header", given: `{"a":"v\r\nX: y"}`, refused: "a: what comes into the header X-A has a line break",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.entry.Key = "own"
			if faults := test.entry.Check(); len(faults) > 0 {
				t.Fatal(faults)
			}
			tool, faults := test.entry.Build()
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if tool.Operation.Path != test.path || placed(tool.Call) != test.places {
				t.Errorf("the request is %s with %s, want %s with %s", tool.Operation.Path, placed(tool.Call), test.path, test.places)
			}
			if tool.Prepare == nil {
				if test.given != "" {
					t.Error("there is no Prepare")
				}
				return
			}
			got, err := tool.Prepare([]byte(test.given))
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("Prepare: %v, want %s", err, test.refused)
				}
			} else if err != nil || string(got) != test.want {
				t.Errorf("Prepare(%s) = %s, %v, want %s", test.given, got, err, test.want)
			}
		})
	}
}

// TestBuildFaults: an entry with faults gives no tool.
func TestBuildFaults(t *testing.T) {
	e := toolset.Entry{Key: "own", Request: "GET /{a}", Line: 3}
	if tool, faults := e.Build(); tool != nil || faults.Error() != "tools: own: request has {a}, and no argument is called that" || faults[0].Line != 3 {
		t.Errorf("Build() = %v, %v", tool, faults)
	}
}

// TestOpenTo sends arguments that the schema does not name in the body, or in the query if there is none.
func TestOpenTo(t *testing.T) {
	for _, test := range []struct {
		request   string
		headers   map[string]string
		args      string
		want      string
		arguments string
	}{
		{"POST /s/{id}", map[string]string{"X-Key": "k-{key}"}, `{"id":1,"key":"x","n":2}`, `{"id":1,"key":"x","n":2,":header:X-Key":"k-x",":body":{"n":2}}`, "id@path :header:X-Key@header :body@body"},
		{"POST /s/{id}", nil, `{"id":1,"key":"x","n":2}`, `{"id":1,"key":"x","n":2,":body":{"key":"x","n":2}}`, "id@path :body@body"},
		{"GET /s/{id}", nil, `{"id":1,"key":"x","n":2}`, `{"id":1,"key":"x","n":2,"query arguments":{"n":2}}`, "id@path key@query query arguments@query"},
	} {
		e := toolset.Entry{Key: "own", Request: test.request, Args: args(t, "id integer", "key string"), Headers: test.headers}
		tool, faults := e.Build()
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		tool.OpenTo(&e)
		if got := placed(tool.Call); got != test.arguments {
			t.Errorf("%s: the arguments are %s, want %s", test.request, got, test.arguments)
		}
		if got, err := tool.Prepare([]byte(test.args)); err != nil || string(got) != test.want {
			t.Errorf("%s: Prepare(%s) = %s, %v, want %s", test.request, test.args, got, err, test.want)
		}
	}
}

// TestSettings reads what entries say about the calls of their tools.
func TestSettings(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		entry toolset.Entry
		want  string // timeout, attempts, repeat, fresh for, bytes of an answer, sets
		fault string
	}{
		{toolset.Entry{Request: "GET /"}, "0s 0 false 0s 0 true", ""},
		{toolset.Entry{Request: "GET /", Timeout: time.Second, Attempts: 4, Cache: &yes, KeepFor: time.Minute, Limits: toolset.ToolLimits{Answer: 2048}}, "1s 4 false 1m0s 2048 true", ""},
		{toolset.Entry{Request: "GET /", Attempts: 1}, "0s 1 false 0s 0 true", ""},
		{toolset.Entry{Request: "POST /", Attempts: 2, Writes: &no}, "0s 2 true 0s 0 true", ""},
		{toolset.Entry{Request: "POST /", Attempts: 2, Headers: map[string]string{"idempotency-key": "x"}}, "0s 2 false 0s 0 true", ""},
		{toolset.Entry{Request: "POST /", Attempts: 2}, "", "retry: a repeated POST may take effect twice"},
		{toolset.Entry{Request: "POST /", As: toolset.AsResource}, "", "as: resource is for GET, and this is a POST"},
		{toolset.Entry{Request: "POST /", Cache: &yes}, "", "cache is for GET"},
	} {
		test.entry.Key = "own"
		tool, faults := test.entry.Build()
		if test.fault != "" {
			if len(faults) != 1 || !strings.Contains(faults.Error(), test.fault) {
				t.Errorf("%+v: %v, want %s", test.entry, faults, test.fault)
			}
			continue
		}
		if len(faults) > 0 {
			t.Errorf("%+v: %v", test.entry, faults)
			continue
		}
		s := tool.Settings
		if got := fmt.Sprint(s.Timeout, s.Attempts, s.Repeat, s.KeepFor, s.MaxAnswer, s.Sets); got != test.want {
			t.Errorf("%+v: %s, want %s", test.entry, got, test.want)
		}
	}
	post := toolset.Entry{Key: "own", Request: "POST /", Attempts: 2}
	post.Repeat()
	if tool, faults := post.Build(); len(faults) > 0 || !tool.Settings.Repeat {
		t.Errorf("after Repeat: %+v, %v", tool, faults)
	}
}

// TestLineOf finds the line of a key, or of the nearest key around it.
func TestLineOf(t *testing.T) {
	e := toolset.Entry{Key: "own", Line: 3, Lines: map[string]int{"body": 10, "body: a": 11}}
	for key, want := range map[string]int{"body": 10, "body: a": 11, "body: a: b": 11, "body: c": 10, "headers: X": 3} {
		if got := e.LineOf(key); got != want {
			t.Errorf("LineOf(%s) = %d, want %d", key, got, want)
		}
	}
	faults := toolset.Faults{e.Fault("is %s", "wrong"), e.KeyFault("body: a", "body is wrong")}
	if got := faults.Error(); got != "tools: own: is wrong\ntools: own: body is wrong" || faults[1].Line != 11 {
		t.Errorf("faults: %s, line %d", got, faults[1].Line)
	}
}
