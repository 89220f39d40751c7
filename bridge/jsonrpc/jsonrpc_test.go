package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in                string
		id, method, params, tok string
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}`, "1", "tools/call", `{"name":"x","_meta":{"progressToken":"p"}}`, `"p"`},
		{"string id keeps its text (R-001)", `{"id":"\u0031","jsonrpc":"2.0","method":"ping"}`, `"\u0031"`, "ping", "", ""},
		{"large id (R-003)", `{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}`, "12345678901234567890", "ping", "", ""},
		{"progress", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`, "", "notifications/progress", `{"progressToken":7,"progress":1}`, "7"},
		{"escaped member names are the same names", `{"jsonrpc":"2.0","\u0069d":3,"method":"x","params":{"\u005fmeta":{"progress\u0054oken":9}}}`, "3", "x", `{"\u005fmeta":{"progress\u0054oken":9}}`, "9"},
		{"white space", " {\n\"jsonrpc\" : \"2.0\",\r\n \"method\":\t\"x\" , \"params\" : { } } \n", "", "x", "{ }", ""},
		{"params null are none", `{"jsonrpc":"2.0","id":1,"method":"x","params":null}`, "1", "x", "", ""},
		{"error null beside a result is none", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, "1", "", "", ""},
		{"unknown members", `{"jsonrpc":"2.0","extra":[1,{"id":5}],"method":"x"}`, "", "x", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Parse([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(m.ID) != tc.id || m.Method != tc.method || string(m.Params) != tc.params || string(m.Token()) != tc.tok {
				t.Errorf("Parse(%s) = id %s, method %s, params %s, token %s", tc.in, m.ID, m.Method, m.Params, m.Token())
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, id, want string }{
		{"empty", ``, "", "unexpected end"},
		{"cut", `{"jsonrpc":"2.0"`, "", "unexpected end"},
		{"two messages", `{"jsonrpc":"2.0","method":"x"}{}`, "", "text behind the message at byte 30"},
		{"control character", "{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}", "", "control character"},
		{"not an object", `[1]`, "", "an object is expected"},
		{"no version", `{"id":4,"method":"x"}`, "4", `jsonrpc must be "2.0"`},
		{"old version", `{"jsonrpc":"1.0","id":4,"method":"x"}`, "4", `jsonrpc must be "2.0"`},
		{"id null (R-002)", `{"jsonrpc":"2.0","id":null,"method":"x"}`, "", "id must be"},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"x"}`, "", "id must be"},
		{"method twice", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, "1", "member method appears twice"},
		{"id twice, once escaped", `{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"b"}`, "2", "member id appears twice"},
		{"_meta twice", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{},"_meta":{}}}`, "1", "member _meta appears twice"},
		{"token twice", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1,"progressToken":2}}}`, "1", "member progressToken appears twice"},
		{"params an array", `{"jsonrpc":"2.0","id":1,"method":"a","params":[]}`, "1", "params must be an object"},
		{"nothing", `{"jsonrpc":"2.0","id":1}`, "1", "neither"},
		{"both", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, "1", "not both"},
		{"deep", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}}`, "", "nested too deep"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Parse(%.80s) = %v, want an error with %q", tc.in, err, tc.want)
			}
			if invalid, ok := errors.AsType[*InvalidError](err); ok && string(invalid.ID) != tc.id {
				t.Errorf("Parse(%s): id %s, want %s", tc.in, invalid.ID, tc.id)
			}
		})
	}
}

// The error of a client's invalid message has the right code, and the id if possible. Ids of servers may be any
// number.
func TestParseUTF8(t *testing.T) {
	request := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"x"}` }
	for _, tc := range []struct {
		in, want string
		code     int // 0 means that it is taken
		id       string
	}{
		{request("-7"), "", 0, ""},
		{request("-0"), "", 0, ""},
		{request(`"1.5e"`), "", 0, ""},
		{request("123456789012345678901234567890"), "", 0, ""},
		{request("1.5"), "a string or an integer", CodeInvalidRequest, "1.5"},
		{request("1.0"), "a string or an integer", CodeInvalidRequest, "1.0"},
		{request("1e2"), "a string or an integer", CodeInvalidRequest, "1e2"},
		{request("1e999"), "a string or an integer", CodeInvalidRequest, ""}, // the client could not read it in the answer
		{request("1" + strings.Repeat("0", 400)), "a string or an integer", CodeInvalidRequest, ""},
		{request("-1E2"), "a string or an integer", CodeInvalidRequest, "-1E2"},
		{`{"jsonrpc":"2.0","id":1.5,"result":{}}`, "", 0, ""}, // nobody's answer, which is no fault
		{`{"jsonrpc":"2.0","id":7,"method":"a` + "\xff" + `"}`, "not JSON: it is not UTF-8", CodeParse, "7"},
		{`{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"` + "\xc3" + `"}}`, "not JSON: it is not UTF-8", CodeParse, "7"},
		{`{"jsonrpc":"1.0","id":7,"method":"a` + "\xff" + `"}`, "not JSON: it is not UTF-8", CodeParse, "7"},
		{request(`"a` + "\xff" + `"`), "not JSON: it is not UTF-8", CodeParse, ""},
	} {
		_, err := ParseUTF8([]byte(tc.in))
		invalid, ok := errors.AsType[*InvalidError](err)
		if tc.code == 0 {
			if err != nil {
				t.Errorf("ParseUTF8(%q) = %v", tc.in, err)
			}
			continue
		}
		if !ok || !strings.Contains(err.Error(), tc.want) || invalid.Code() != tc.code || string(invalid.ID) != tc.id {
			t.Errorf("ParseUTF8(%q) = %v, want %q, code %d, id %s", tc.in, err, tc.want, tc.code, tc.id)
		}
		if _, err := Parse([]byte(tc.in)); err != nil && tc.code == CodeInvalidRequest {
			t.Errorf("Parse(%q) = %v: a server may send it", tc.in, err)
		}
	}
}

func TestAppend(t *testing.T) {
	for _, tc := range []struct{ name, in, id, token, want string }{
		{"own id", `{"jsonrpc":"2.0","id":"a","method":"x"}`, "12", "", `{"jsonrpc":"2.0","id":12,"method":"x"}`},
		{"token is spliced", `{"method":"x","params":{"a":[1.50],"_meta":{"k":1,"progressToken": "t","z":2}},"jsonrpc":"2.0","id":1}`, "12", "77",
			`{"jsonrpc":"2.0","id":12,"method":"x","params":{"a":[1.50],"_meta":{"k":1,"progressToken": 77,"z":2}}}`},
		{"no token, none added", `{"jsonrpc":"2.0","id":1,"method":"x","params":{}}`, "12", "77", `{"jsonrpc":"2.0","id":12,"method":"x","params":{}}`},
		{"line breaks go (R-007)", "{\"jsonrpc\":\"2.0\",\"id\":1,\n\"method\":\"x\",\"params\":{\r\n\"a\":\"\\n\"}}", "2", "", `{"jsonrpc":"2.0","id":2,"method":"x","params":{  "a":"\n"}}`},
		{"result", `{"jsonrpc":"2.0","id":9,"result":{"big":12345678901234567890}}`, `"q"`, "", `{"jsonrpc":"2.0","id":"q","result":{"big":12345678901234567890}}`},
		{"error without id (R-014)", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, "", "", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Parse([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			var id, token []byte
			if tc.id != "" {
				id = []byte(tc.id)
			}
			if tc.token != "" {
				token = []byte(tc.token)
			}
			if got := string(m.Append(nil, id, token)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A released message must not show another one's bytes.
func TestReleaseEmpties(t *testing.T) {
	buf := NewBuffer(0)
	buf.B = append(buf.B, `{"jsonrpc":"2.0","id":1,"result":{}}`...)
	m, err := Parse(buf.B)
	if err != nil {
		t.Fatal(err)
	}
	m.Own(buf)
	m.Release()
	m.Release()
	buf.Free()
	if m.Result != nil || m.ID != nil {
		t.Errorf("a released message still has result %s, id %s", m.Result, m.ID)
	}
	a, b := NewBuffer(0), NewBuffer(0)
	if a == b || (cap(a.B) > 0 && cap(b.B) > 0 && &a.B[:1][0] == &b.B[:1][0]) {
		t.Error("one buffer was given out twice")
	}
}

func TestSplit(t *testing.T) {
	got, err := Split([]byte(` [ {"a":[1,2]} , 3 ] `))
	if err != nil || len(got) != 2 || string(got[0]) != `{"a":[1,2]}` || string(got[1]) != "3" {
		t.Errorf("Split = %q, %v", got, err)
	}
	if got, err := Split([]byte("[]")); err != nil || len(got) != 0 {
		t.Errorf("Split([]) = %q, %v", got, err)
	}
	if _, err := Split([]byte(`[1,]`)); err == nil {
		t.Error("Split([1,]) = nil error")
	}
}

func TestFinder(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":17,"result":{"id":5}}`, "17"},
		{`{"jsonrpc":"2.0","result":{"id":5,"x":"\"id\":3}"},"id": 42 }`, "42"},
		{`{"result":["a\\",{"id":1}],"id":"x\"y"}`, `"x\"y"`},
		{`{"method":"x","id":4}`, ""},
		{`{"result":"id","x":{}}`, ""},
		{`{"id":null,"error":{}}`, ""},
	} {
		for _, size := range []int{1, 3, 1000} {
			var f Finder
			for in := []byte(tc.in); len(in) > 0; in = in[min(size, len(in)):] {
				f.Write(in[:min(size, len(in))])
			}
			if string(f.ID()) != tc.want {
				t.Errorf("Finder(%s) by %d = %s, want %s", tc.in, size, f.ID(), tc.want)
			}
		}
	}
}

var seeds = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":5},"uri":"u"}}`,
	`{"jsonrpc":"2.0","id":"x","result":{"a":[true,false,null,-1.5e+7,"\u00e9\n"]}}`,
	`{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"},"id":null}`,
	`{"jsonrpc":"2.0","id":7,"error":{"code":"1.0","message":null,"data":"d"}}`, `{"jsonrpc":"2.0","id":7,"result":null,"error":"text"}`, "\ufeff\x1b[0m[{}]\x1b[0m",
	"[{},\n1]", `"\ud800"`, "\"\xff\"", `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"id":1,"id":2}`, `[1,]`, `{"a":1,}`,
}

// FuzzParse compares the one pass with encoding/json: the same texts are JSON,
// and what is written from a message decodes to what the message said.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		syntax, notJSON := errors.AsType[*SyntaxError](err)
		if notJSON && syntax.What == "nested too deep" {
			return
		}
		if !json.Valid(b) {
			b = Bare(b)
		}
		if json.Valid(b) == notJSON {
			t.Fatalf("Parse(%q) = %v, json.Valid = %v", b, err, json.Valid(b))
		}
		if elements, err := Split(b); err == nil {
			var want []json.RawMessage
			if err := json.Unmarshal(b, &want); err != nil || len(want) != len(elements) {
				t.Fatalf("Split(%q) = %q, json %q, %v", b, elements, want, err)
			}
		}
		if err != nil {
			return
		}
		if c := m.Clone(); c.Method != m.Method || !bytes.Equal(c.ID, m.ID) { // also: it parses again
			t.Fatalf("%q became %q %q", b, c.ID, c.Method)
		}
		line := m.Append(nil, m.ID, nil)
		if bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("a line break in %q", line)
		}
		var in, out map[string]json.RawMessage
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, k := range []string{"params", "result", "error"} {
			var x, y bytes.Buffer
			if in[k] == nil || string(in[k]) == "null" && out[k] == nil {
				continue
			}
			if k == "error" { // which may have become one
				code := gjson.GetBytes(out[k], "code")
				if code.Type != gjson.Number || strings.ContainsAny(code.Raw, ".eE") || gjson.GetBytes(out[k], "message").Type != gjson.String {
					t.Fatalf("the error %q became %q", in[k], out[k])
				}
				if string(wellFormed(in[k])) != string(in[k]) {
					continue
				}
			}
			if json.Compact(&x, in[k]) != nil || json.Compact(&y, out[k]) != nil || x.String() != y.String() {
				t.Fatalf("%s: %q became %q", k, in[k], out[k])
			}
		}
	})
}

// FuzzFinder compares the id found in passing with the parsed one.
func FuzzFinder(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		m, err := Parse(b)
		if err != nil || bytes.IndexByte(b, '\\') >= 0 || len(m.ID) >= maxFinderText {
			return
		}
		var finder Finder
		size = max(size, 1)
		for in := b; len(in) > 0; in = in[min(size, len(in)):] {
			finder.Write(in[:min(size, len(in))])
		}
		want := string(m.ID)
		if m.Method != "" {
			want = ""
		}
		if string(finder.ID()) != want {
			t.Fatalf("Finder(%q) = %s, want %s", b, finder.ID(), want)
		}
	})
}

// FuzzOutlines compares a Finder with the parser, for valid messages.
func FuzzOutlines(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"id":[{"id":5}],"method":{}}}`, `{"result":{"method":"x"},"id" : "a\"b" , "jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","error":{"id":7}}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, ` {"a":"{[\\","id":-1.5e3,"jsonrpc":"2.0","method":"m"}`, `{"jsonrpc":"2.0","method":"m","x":[[],{}],"id":0}`,
	} {
		f.Add([]byte(text), []byte{1})
	}
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		m, err := Parse(text)
		if err != nil || bytes.Contains(text, []byte(`\u`)) { // names may be written in two ways; a Finder knows one
			return
		}
		var f Finder
		for in, n := bytes.Clone(text), 0; len(in) > 0; n++ {
			size := len(in)
			if len(cuts) > 0 {
				size = min(1+int(cuts[n%len(cuts)]), size)
			}
			f.Write(in[:size])
			in = in[size:]
		}
		all := f.Outlines()
		if len(all) != 1 || !bytes.Equal(all[0].Answerable(), m.ID) || all[0].Method != (m.Method != "") || all[0].Payload != m.IsResponse() {
			t.Errorf("outline of %q: %d, id %q, method %t, payload %t", text, len(all), all[0].ID, all[0].Method, all[0].Payload)
		}
	})
}

// Each message of a batch has an outline. The batch itself is no answer.
func TestOutlines(t *testing.T) {
	var f Finder
	f.Write([]byte(` [{"id":1,"method":"a","params":[{"id":7}]}, 5, {"result":{"method":1},"id":"b"},{"method":"c"},{"id":[1,{"x":2}],"error":0}]`))
	got := f.Outlines()
	want := []Outline{{[]byte("1"), true, false}, {[]byte(`"b"`), false, true}, {nil, true, false}, {[]byte(`[1,{"x":2}]`), false, true}}
	if !reflect.DeepEqual(got, want) || f.ID() != nil || f.Asks() {
		t.Errorf("outlines %+v, id %s", got, f.ID())
	}
	if got[0].Answerable() == nil || got[3].Answerable() != nil {
		t.Error("an answer can carry a number, and no list")
	}
	for _, text := range []string{"", "7", `"{"`, "[1,2]", `{"id":1`} {
		f = Finder{}
		f.Write([]byte(text))
		if got := f.Outlines(); len(got) != 1 || !reflect.DeepEqual(got[0], Outline{}) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := strings.Repeat(`The quick brown fox jumps over 13 lazy dogs; \"quoted\", <tag> & back\\slash,\ta line\né ü 世界 🦊. `, 1<<20/110)
	in := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + text + `"}}}`)
	for _, bc := range []struct {
		name  string
		parse func([]byte) bool
	}{
		{"parse", func(b []byte) bool { _, err := Parse(b); return err == nil }},
		{"reference-json.Valid", json.Valid},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if !bc.parse(in) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
