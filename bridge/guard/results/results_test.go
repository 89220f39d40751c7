package results_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// tool is an Upstream with one answer to calls, and one list of tools.
type tool struct {
	bridge.Upstream
	result, list string
}

func (t *tool) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/list" {
		return jsonrpc.NewResult(nil, []byte(t.list)), nil
	}
	return jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + t.result + `}`))
}

var ann = &bridge.Caller{Principal: "ann", Session: "s1", Revision: era.LatestLegacy}

func call(t *testing.T, up bridge.Upstream, from *bridge.Caller) gjson.Result {
	t.Helper()
	a, err := up.Call(t.Context(), &bridge.Request{
		Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{}}}`),
		From:    from,
	})
	if err != nil {
		t.Fatal(err)
	}
	return gjson.Get(bridgetest.Text(a), "result")
}

func text(s string) string { return `{"type":"text","text":` + fmt.Sprintf("%q", s) + `}` }

// idOf returns the id in the note of a cut result.
func idOf(t *testing.T, result gjson.Result) string {
	t.Helper()
	_, rest, found := strings.Cut(result.Get("content.#(text%\"*read_result*\").text").Str, `{"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !found || id == "" {
		t.Fatalf("no id in %s", result.Raw)
	}
	return id
}

var lines = func() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "line %d of the log\n", i+1)
	}
	return b.String()
}()

// The beginning of a long result is passed on, and the rest can be read by the caller that got it, and nobody else (C-040).
func TestCut(t *testing.T) {
	store := results.NewStore(0, "bridge://results/")
	r := results.New(store)
	r.Set(results.Options{Max: 1024}, nil)
	up := r.Wrap(&tool{result: `{"content":[` + text("short") + "," + text(lines) + `],"_meta":{"a":1}}`})
	got := call(t, up, ann)
	shown := got.Get("content.1.text").Str
	if len(shown) > 1024 || !strings.HasSuffix(shown, " of the log\n") || !strings.HasPrefix(lines, shown) || got.Get("content.0.text").Str != "short" || !got.Get("_meta.a").Exists() {
		t.Errorf("the result is %s", got.Raw)
	}
	next := strings.Count(shown, "\n") + 1
	bridgetest.Contains(t, got.Get("content.2.text").Str, fmt.Sprintf(`"from":%d}`, next), "of 1001 lines")
	id := idOf(t, got)
	if link := got.Get("content.3"); link.Get("type").Str != "resource_link" || link.Get("uri").Str != "bridge://results/"+id {
		t.Errorf("the link is %s", link.Raw)
	}
	read := func(from *bridge.Caller, args string) string {
		text, _ := store.Read(from, []byte(strings.Replace(args, "{", `{"id":"`+id+`",`, 1)))
		return text
	}
	for args, want := range map[string]string{
		`{"from":2,"lines":2}`:                "line 1 of the log\nline 2 of the log\n(lines 2 to 3 of 1002)",
		`{"from":1001}`:                       "line 1000 of the log\n\n(lines 1001 to 1002 of 1002)",
		`{"from":5000}`:                       "The result has 1002 lines.",
		`{"grep":"line 9[0-1]1 "}`:            "902: line 901 of the log\n912: line 911 of the log",
		`{"grep":"line 9[0-1]1 ","from":903}`: "912: line 911 of the log",
		`{"grep":"none"}`:                     "No line matches.",
		`{"grep":"("}`:                        "grep is no regular expression (RE2): error parsing regexp: missing closing ): `(`",
		`{"path":"/a"}`:                       `The result has nothing at path "/a". A path is a JSON pointer, such as /items/0/name.`,
	} {
		if got := read(ann, args); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	if all := read(ann, `{"grep":"line"}`); len(all) > 1100 || !strings.Contains(all, "more match: go on with from ") {
		t.Errorf("many matches are %s", all)
	}
	for who, from := range map[string]*bridge.Caller{
		"another caller":  {Principal: "bob", Session: "s1"},
		"another session": {Principal: "ann", Session: "s2"},
		"no session":      {Principal: "ann"},
	} {
		if got := read(from, `{"from":1}`); !strings.Contains(got, "does not have this result") {
			t.Errorf("%s reads %s", who, got)
		}
		if _, ok := store.Resource(from, "bridge://results/"+id); ok {
			t.Errorf("%s reads the resource", who)
		}
	}
	members, ok := store.Resource(ann, "bridge://results/"+id)
	if whole := gjson.Parse("{" + string(members) + "}"); !ok || whole.Get("contents.#").Int() != 2 || whole.Get("contents.1.text").Str != lines {
		t.Errorf("the resource is %.200s", members)
	}
}

// JSON stays JSON, and structured content stays what its output schema promises (C-041).
func TestCutJSON(t *testing.T) {
	var items []string
	for i := range 500 {
		items = append(items, fmt.Sprintf(`{"id":%d,"name":"item %d"}`, i, i))
	}
	whole := `{"total":500,"items":[` + strings.Join(items, ",") + `]}`
	for _, tc := range []struct {
		schema string
		cut    bool // structured content
	}{
		{`{"type":"object","properties":{"items":{"type":"array"}},"required":["items"]}`, true},
		{`{"type":"object","properties":{"items":{"type":"array","minItems":500}}}`, false}, // it stays whole
		{`{"type":"object","properties":{"items":{"type":"array","items":{"required":["id","name"]}}}}`, true},
		{"", true},
	} {
		store := results.NewStore(0, "bridge://results/")
		r := results.New(store)
		r.Set(results.Options{}, map[string]int64{"g*": 1 << 20, "get": 2048})
		list := `{"tools":[{"name":"get"}]}`
		if tc.schema != "" {
			list = `{"tools":[{"name":"get","outputSchema":` + tc.schema + `}]}`
		}
		got := call(t, r.Wrap(&tool{result: `{"content":[` + text(whole) + `],"structuredContent":` + whole + `}`, list: list}), ann)
		shown := got.Get("content.0.text").Str
		if len(shown) > 2100 || !gjson.Valid(shown) || gjson.Get(shown, "items.0.id").Raw != "0" {
			t.Errorf("%s: the text is %s", tc.schema, shown)
		}
		if c := got.Get("structuredContent"); tc.cut && len(c.Raw) > 2100 || !tc.cut && c.Raw != whole || c.Get("total").Int() != 500 {
			t.Errorf("%s: structured content is %.200s", tc.schema, c.Raw)
		}
		id := idOf(t, got)
		for args, want := range map[string]string{`"path":"/items/499/name"`: `"item 499"`, `"path":"total"`: "500", `"grep":"item 49[89]"`: "1998:"} {
			if text, _ := store.Read(ann, []byte(`{"id":"`+id+`",`+args+`}`)); !strings.Contains(text, want) {
				t.Errorf("%s: %s", args, text)
			}
		}
		if text, _ := store.Read(ann, []byte(`{"id":"`+id+`","path":"/items"}`)); !strings.Contains(text, "showing ") || len(text) > 2300 {
			t.Errorf("a long part is %s", text)
		}
	}
}

// What fits passes untouched, images that do not become a link, errors keep their beginning.
func TestCutOthers(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		result string
		from   *bridge.Caller
		want   []string
		lack   string
	}{
		{`{"content":[` + text("fits") + `]}`, ann, []string{`{"content":[{"type":"text","text":"fits"}]}`}, "read_result"},
		{`{"content":[{"type":"image","data":"` + long + `","mimeType":"image/png"}]}`, ann, []string{"bytes is left out: image image/png)", "resource_link"}, long},
		{`{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"` + long + `"}}]}`, ann, []string{"bytes is left out: file)"}, long},
		{`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"` + long + `"}}]}`, ann, []string{`"uri":"a:b"`, "showing "}, long},
		{`{"content":[{"type":"image","data":"x","mimeType":"` + long + `"}]}`, ann, []string{"bytes is left out: image xxx"}, long},
		{`{"content":[{"type":"text","text":"x","annotations":{"a":"` + long + `"}}]}`, ann, []string{`{"type":"text","text":"x"}`}, long},
		{`{"content":[{"type":"resource","resource":{"uri":"` + long + `","text":"x"}}]}`, ann, []string{"bytes is left out: file)"}, long},
		{`{"content":[{"type":"other","more":"` + long + `"}]}`, ann, []string{"bytes is left out: other)"}, long},
		{`{"content":[],"structuredContent":` + strings.Repeat(`{"a":`, 600) + `"` + long + `"` + strings.Repeat("}", 600) + `}`, ann, []string{"structured content: "}, long},
		{`{"content":[` + text(long) + `],"isError":true}`, ann, []string{strings.Repeat("x", 2048), `"isError":true`}, strings.Repeat("x", 2049)},
		{`{"content":[` + text(long) + `]}`, &bridge.Caller{Revision: era.Rev20250326}, []string{"read_result"}, "resource_link"},
		{`{"resultType":"input_required","content":[` + text(long) + `]}`, &bridge.Caller{Revision: era.LatestModern}, []string{long}, "read_result"},
	} {
		r := results.New(results.NewStore(0, "bridge://results/"))
		r.Set(results.Options{Max: 4096}, nil)
		got := call(t, r.Wrap(&tool{result: tc.result}), tc.from).Raw
		for _, want := range tc.want {
			if !strings.Contains(got, want) || strings.Contains(got, tc.lack) {
				t.Errorf("%.60s: %.300s, want %.100s", tc.result, got, want)
			}
		}
	}
	r := results.New(results.NewStore(0, "bridge://results/"))
	if got := call(t, r.Wrap(&tool{result: `{"content":[` + text(long) + `]}`}), ann).Raw; r.On() || !strings.Contains(got, long) {
		t.Error("without a bound, a result is cut")
	}
}

// One long line is read in pieces, and JSON null is no argument.
func TestReadLongLine(t *testing.T) {
	store := results.NewStore(0, "bridge://results/")
	store.SetUsual(results.Options{Max: 1024})
	line := strings.Repeat("0123456789é", 500)
	id := idOf(t, call(t, results.New(store).Wrap(&tool{result: `{"content":[` + text(line) + `]}`}), ann))
	var all strings.Builder
	for from := 1; all.Len() < len(line); from++ {
		part, failed := store.Read(ann, fmt.Appendf(nil, `{"id":%q,"from":%d,"lines":null,"path":null,"grep":null}`, id, from))
		shown, _, _ := strings.Cut(part, "\n(lines ")
		if failed || len(part) > 1024 || shown == "" {
			t.Fatalf("from %d: %s", from, part)
		}
		all.WriteString(shown)
	}
	if all.String() != line {
		t.Errorf("read %d bytes, want %d", all.Len(), len(line))
	}
}

// The store is bounded in bytes and time, and one caller cannot fill it.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := results.NewStore(64<<10, "bridge://results/")
		store.SetUsual(results.Options{Max: 1024})
		up := results.New(store).Wrap(&tool{result: `{"content":[` + text(strings.Repeat("y", 6000)) + `]}`})
		has := func(from *bridge.Caller, id string) bool {
			_, failed := store.Read(from, []byte(`{"id":"`+id+`"}`))
			return !failed
		}
		bob := &bridge.Caller{Principal: "bob", Revision: era.LatestLegacy}
		of := idOf(t, call(t, up, bob))
		var ids []string
		for range 20 {
			ids = append(ids, idOf(t, call(t, up, ann)))
		}
		kept := 0
		for _, id := range ids {
			if has(ann, id) {
				kept++
			}
		}
		if kept != 2 || !has(ann, ids[19]) || !has(bob, of) {
			t.Errorf("%d results of ann are kept, and bob's: %t", kept, has(bob, of))
		}
		time.Sleep(29 * time.Minute)
		if !has(bob, of) {
			t.Error("a result is gone too early")
		}
		time.Sleep(time.Minute)
		store.Sweep(time.Now())
		if has(bob, of) {
			t.Error("a result is kept too long")
		}
		big := results.New(store).Wrap(&tool{result: `{"content":[` + text(strings.Repeat("y", 20000)) + `]}`})
		bridgetest.Contains(t, call(t, big, ann).Raw, "The whole is too large to be kept")
	})
}

// A long line is cut, and no text of a tool stops the reader.
func FuzzRead(f *testing.F) {
	f.Add(lines, `{"from":3}`)
	f.Add(`{"a":[1,2]}`, `{"path":"/a/1","grep":"x"}`)
	f.Add("x\n", `{"from":-1,"lines":99999999999999999999}`)
	f.Fuzz(func(t *testing.T, content, args string) {
		store := results.NewStore(0, "bridge://results/")
		store.SetUsual(results.Options{Max: 16})
		quoted := jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":`+string(gjson.AppendJSONString(nil, content))+`}]}`))
		up := results.New(store).Wrap(&tool{result: string(quoted.Result)})
		a, err := up.Call(t.Context(), &bridge.Request{
			Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get"}}`),
			From:    ann,
		})
		if err != nil || !gjson.ValidBytes(a.Result) {
			t.Fatalf("%q becomes %s", content, a.Result)
		}
		_, rest, found := strings.Cut(string(a.Result), `{\"id\":\"`)
		if !found || !gjson.Valid(args) || len(args) < 2 || args[0] != '{' {
			return
		}
		id, _, _ := strings.Cut(rest, `\"`)
		store.Read(ann, []byte(`{"id":"`+id+`",`+args[1:]))
	})
}
