package jsonrpc

import (
	"bytes"
	"testing"
)

// TestEdits checks that edits, the token and a new name are all written, in any order.
func TestEdits(t *testing.T) {
	for _, params := range []string{
		`{"name":"a","arguments":{"n":1e400},"_meta":{"progressToken":7,"x":"y"}}`,
		`{"_meta":{"progressToken":7,"x":"y"},"arguments":{"n":1e400},"name":"a"}`,
	} {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		x := bytes.Index(m.Params, []byte(`"y"`))
		e := m.Edited(Edit{From: x, To: x + 3, Text: []byte("null")}).Renamed("b").Renamed("c")
		got := string(e.Append(nil, []byte("2"), []byte(`"tok"`)))
		want := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + params + `}`
		for _, r := range [][2]string{{`"a"`, `"c"`}, {`"y"`, `null`}, {`:7`, `:"tok"`}} {
			want = string(bytes.Replace([]byte(want), []byte(r[0]), []byte(r[1]), 1))
		}
		if got != want || e.Name() != "c" || m.Name() != "a" {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if m := e.Clone(); m.Name() != "c" || string(m.Params) != string(e.Whole()) {
			t.Errorf("a copy has %s", m.Params)
		}
	}
}

// TestFound checks that the members that describe a result are found, and that it can be edited without a copy.
func TestFound(t *testing.T) {
	m, err := Parse([]byte(` {"jsonrpc":"2.0","id":1, "result" : {"content":[], "resultType" : "complete","structuredContent":[1],"_meta":{"resultType":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	f := m.Found()
	if got := string(f.Type.Of(m.Result)); got != `"complete"` {
		t.Errorf("resultType is %s", got)
	}
	if got := string(f.Meta.Of(m.Result)); got != `{"resultType":1}` {
		t.Errorf("_meta is %s", got)
	}
	if string(f.Structured.Of(m.Result)) != `[1]` || f.TTL.End != 0 || f.Twice {
		t.Errorf("found %+v", f)
	}
	m.Edit(Edit{From: f.Type.Value, To: f.Type.End, Text: []byte(`"x"`)}, Edit{From: 1, To: 1, Text: []byte(`"a":1,`)})
	const want = `{"a":1,"content":[], "resultType" : "x","structuredContent":[1],"_meta":{"resultType":1}}`
	_, pieces := m.Payload(nil)
	if got := string(m.Append(nil, m.ID, nil)); got != `{"jsonrpc":"2.0","id":1,"result":`+want+`}` || string(m.Whole()) != want || string(bytes.Join(pieces, nil)) != want {
		t.Errorf("got %s", got)
	}
	twice, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"_meta":{},"\u005fmeta":1}}`))
	if err != nil || !twice.Found().Twice {
		t.Errorf("a member that appears twice: %v, %v", twice, err)
	}
	if m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","_meta":{}}}`)); err != nil || m.Found() != (Found{}) {
		t.Errorf("an error: %+v, %v", m, err)
	}
}

// IsError knows parsed results, in any spelling of the name, and results made here.
func TestIsError(t *testing.T) {
	for result, want := range map[string]bool{
		`{"content":[],"isError":true}`:                      true,
		`{ "isError" : true , "content":[]}`:                 true,
		`{"isError":true,"isError":false}`:                   true, // peers differ in which one they take
		`{"isError":false}`:                                  false,
		`{"isError":"true"}`:                                 false,
		`{"structuredContent":{"isError":true}}`:             false,
		`{"content":[{"type":"text","text":"isError"}]}`:     false,
		`{"content":[{"type":"text","text":"\"isError\""}]}`: false,
		`{}`: false,
	} {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
		if err != nil {
			t.Fatal(err)
		}
		for what, one := range map[string]*Message{
			"parsed": m, "edited": m.Edited(First([]byte(result), `"x":1`)), "a copy": m.Clone(),
			"another result": m.WithResult([]byte(result)), "made": NewResult(nil, []byte(result)),
		} {
			if got := one.IsError(); got != want {
				t.Errorf("%s, %s: IsError = %t, want %t", result, what, got, want)
			}
		}
	}
	escaped, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"\u0069sError":true}}`))
	if err != nil || !escaped.IsError() {
		t.Errorf("a name with an escape: %v, %v", escaped, err)
	}
	if m := NewToolResult(nil, []byte(`{"content":[],"isError":true}`), true); !m.IsError() || NewToolResult(nil, m.Result, false).IsError() {
		t.Error("NewToolResult does not record whether the result has isError")
	}
	if m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","isError":true}}`)); err != nil || m.IsError() {
		t.Errorf("an error: %+v, %v", m, err)
	}
}
