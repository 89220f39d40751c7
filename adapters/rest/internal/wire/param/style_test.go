package param_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// TestStyles is the table of styles (OpenAPI 3.1, 4.8.12.4), each with every kind of value.
func TestStyles(t *testing.T) {
	const (
		str = `"blue"`
		arr = `["a","b"]`
		obj = `{"R":1,"G":2}`
	)
	type row struct {
		p    *openapi.Parameter
		want [6]string // string, array, object, empty string, one item, reserved characters in items
	}
	values := [6]string{str, arr, obj, `""`, `["x"]`, `["a b","c/d&é"]`}
	const refused = "!"
	q := func(s string) string { return "GET /x?" + s }
	h := func(s string) string { return "GET /x\nC: " + s }
	ck := func(s string) string { return "GET /x\nCookie: " + s }
	pt := func(s string) string { return "GET /p/" + s + "/q" }
	coll := func(in openapi.Place, format string) *openapi.Parameter {
		return &openapi.Parameter{Name: "c", In: in, Style: map[openapi.Place]string{openapi.InPath: "simple", openapi.InHeader: "simple", openapi.InQuery: "form"}[in], CollectionFormat: format}
	}
	reserved := func(p *openapi.Parameter) *openapi.Parameter { p.AllowReserved = true; return p }
	var cases []golden
	for name, r := range map[string]row{
		"path simple":            {parameter("path", "simple", false), [6]string{pt("blue"), pt("a,b"), pt("R,1,G,2"), refused, pt("x"), pt("a%20b,c%2Fd%26%C3%A9")}},
		"path simple exploded":   {parameter("path", "simple", true), [6]string{pt("blue"), pt("a,b"), pt("R=1,G=2"), refused, pt("x"), pt("a%20b,c%2Fd%26%C3%A9")}},
		"path label":             {parameter("path", "label", false), [6]string{pt(".blue"), pt(".a,b"), pt(".R,1,G,2"), refused, pt(".x"), pt(".a%20b,c%2Fd%26%C3%A9")}},
		"path label exploded":    {parameter("path", "label", true), [6]string{pt(".blue"), pt(".a.b"), pt(".R=1.G=2"), refused, pt(".x"), pt(".a%20b.c%2Fd%26%C3%A9")}},
		"path matrix":            {parameter("path", "matrix", false), [6]string{pt(";c=blue"), pt(";c=a,b"), pt(";c=R,1,G,2"), pt(";c"), pt(";c=x"), pt(";c=a%20b,c%2Fd%26%C3%A9")}},
		"path matrix exploded":   {parameter("path", "matrix", true), [6]string{pt(";c=blue"), pt(";c=a;c=b"), pt(";R=1;G=2"), pt(";c"), pt(";c=x"), pt(";c=a%20b;c=c%2Fd%26%C3%A9")}},
		"path allowReserved":     {reserved(parameter("path", "simple", false)), [6]string{pt("blue"), pt("a,b"), pt("R,1,G,2"), refused, pt("x"), pt("a%20b,c/d&%C3%A9")}},
		"query form":             {parameter("query", "form", false), [6]string{q("c=blue"), q("c=a,b"), q("c=R,1,G,2"), q("c="), q("c=x"), q("c=a%20b,c%2Fd%26%C3%A9")}},
		"query form exploded":    {parameter("query", "form", true), [6]string{q("c=blue"), q("c=a&c=b"), q("R=1&G=2"), q("c="), q("c=x"), q("c=a%20b&c=c%2Fd%26%C3%A9")}},
		"query space":            {parameter("query", "spaceDelimited", false), [6]string{q("c=blue"), q("c=a%20b"), q("c=R%201%20G%202"), q("c="), q("c=x"), refused}},
		"query space exploded":   {parameter("query", "spaceDelimited", true), [6]string{q("c=blue"), q("c=a&c=b"), q("R=1&G=2"), q("c="), q("c=x"), q("c=a%20b&c=c%2Fd%26%C3%A9")}},
		"query pipe":             {parameter("query", "pipeDelimited", false), [6]string{q("c=blue"), q("c=a%7Cb"), q("c=R%7C1%7CG%7C2"), q("c="), q("c=x"), q("c=a%20b%7Cc%2Fd%26%C3%A9")}},
		"query pipe exploded":    {parameter("query", "pipeDelimited", true), [6]string{q("c=blue"), q("c=a&c=b"), q("R=1&G=2"), q("c="), q("c=x"), q("c=a%20b&c=c%2Fd%26%C3%A9")}},
		"query deepObject":       {parameter("query", "deepObject", true), [6]string{q("c=blue"), q("c%5B%5D=a&c%5B%5D=b"), q("c%5BR%5D=1&c%5BG%5D=2"), q("c="), q("c%5B%5D=x"), q("c%5B%5D=a%20b&c%5B%5D=c%2Fd%26%C3%A9")}},
		"query allowReserved":    {reserved(parameter("query", "form", true)), [6]string{q("c=blue"), q("c=a&c=b"), q("R=1&G=2"), q("c="), q("c=x"), q("c=a%20b&c=c/d%26%C3%A9")}},
		"header simple":          {parameter("header", "simple", false), [6]string{h("blue"), h("a,b"), h("R,1,G,2"), h(""), h("x"), h("a b,c/d&é")}},
		"header simple exploded": {parameter("header", "simple", true), [6]string{h("blue"), h("a,b"), h("R=1,G=2"), h(""), h("x"), h("a b,c/d&é")}},
		"cookie form":            {parameter("cookie", "form", false), [6]string{ck("c=blue"), ck("c=a,b"), ck("c=R,1,G,2"), ck("c="), ck("c=x"), ck("c=a%20b,c%2Fd%26%C3%A9")}},
		"cookie form exploded":   {parameter("cookie", "form", true), [6]string{ck("c=blue"), ck("c=a; c=b"), ck("R=1; G=2"), ck("c="), ck("c=x"), ck("c=a%20b; c=c%2Fd%26%C3%A9")}},
		"cookie cookie":          {parameter("cookie", "cookie", true), [6]string{ck("c=blue"), ck("c=a; c=b"), ck("R=1; G=2"), ck("c="), ck("c=x"), ck("c=a%20b; c=c/d&%C3%A9")}},
		"query csv":              {coll("query", "csv"), [6]string{q("c=blue"), q("c=a,b"), q("c=R,1,G,2"), q("c="), q("c=x"), q("c=a%20b,c%2Fd%26%C3%A9")}},
		"query ssv":              {coll("query", "ssv"), [6]string{q("c=blue"), q("c=a%20b"), q("c=R,1,G,2"), q("c="), q("c=x"), refused}},
		"query tsv":              {coll("query", "tsv"), [6]string{q("c=blue"), q("c=a%09b"), q("c=R,1,G,2"), q("c="), q("c=x"), q("c=a%20b%09c%2Fd%26%C3%A9")}},
		"query pipes":            {coll("query", "pipes"), [6]string{q("c=blue"), q("c=a%7Cb"), q("c=R,1,G,2"), q("c="), q("c=x"), q("c=a%20b%7Cc%2Fd%26%C3%A9")}},
		"query multi":            {coll("query", "multi"), [6]string{q("c=blue"), q("c=a&c=b"), q("c=R,1,G,2"), q("c="), q("c=x"), q("c=a%20b&c=c%2Fd%26%C3%A9")}},
		"path csv":               {coll("path", "csv"), [6]string{pt("blue"), pt("a,b"), pt("R,1,G,2"), refused, pt("x"), pt("a%20b,c%2Fd%26%C3%A9")}},
		"path ssv":               {coll("path", "ssv"), [6]string{pt("blue"), pt("a%20b"), pt("R,1,G,2"), refused, pt("x"), refused}},
		"path pipes":             {coll("path", "pipes"), [6]string{pt("blue"), pt("a%7Cb"), pt("R,1,G,2"), refused, pt("x"), pt("a%20b%7Cc%2Fd%26%C3%A9")}},
		"header csv":             {coll("header", "csv"), [6]string{h("blue"), h("a,b"), h("R,1,G,2"), h(""), h("x"), h("a b,c/d&é")}},
		"header ssv":             {coll("header", "ssv"), [6]string{h("blue"), h("a b"), h("R,1,G,2"), h(""), h("x"), refused}},
		"header pipes":           {coll("header", "pipes"), [6]string{h("blue"), h("a|b"), h("R,1,G,2"), h(""), h("x"), h("a b|c/d&é")}},
	} {
		path := "/x"
		if r.p.In == openapi.InPath {
			path = "/p/{c}/q"
		}
		for i, want := range r.want {
			g := golden{name: name, tool: tool("GET", path, r.p), args: `{"c":` + values[i] + `}`, want: want}
			if want == refused {
				g.want, g.refused = "", "c: "
			}
			cases = append(cases, g)
		}
	}
	runGolden(t, cases)
}

// TestValues sends what is given as it is written, and nothing else.
func TestValues(t *testing.T) {
	query := func(args, want string) golden {
		return golden{name: "query", tool: tool("GET", "/x", parameter("query", "form", true)), args: `{"c":` + args + `}`, want: want}
	}
	whole := parameter("query", "form", true)
	whole.Type = "integer"
	integer := func(args, want string) golden {
		return golden{name: "integer", tool: tool("GET", "/x", whole), args: `{"c":` + args + `}`, want: want}
	}
	runGolden(t, []golden{
		query(`null`, "GET /x"), query(`[]`, "GET /x"), query(`{}`, "GET /x"), query(`[null]`, "GET /x"), query(`{"a":null}`, "GET /x"),
		query(`[null,"a",null]`, "GET /x?c=a"), query(`{"a":null,"b":1}`, "GET /x?b=1"),
		query(`true`, "GET /x?c=true"), query(`false`, "GET /x?c=false"), query(`0`, "GET /x?c=0"), query(`-0.5`, "GET /x?c=-0.5"),
		query(`1700000000`, "GET /x?c=1700000000"), query(`1.7e9`, "GET /x?c=1700000000"), query(`1.50`, "GET /x?c=1.50"),
		query(`9007199254740993`, "GET /x?c=9007199254740993"), query(`12345678901234567890.123456789`, "GET /x?c=12345678901234567890.123456789"),
		query(`1e-7`, "GET /x?c=0.0000001"), query(`-1.25E+1`, "GET /x?c=-12.5"), query(`1e0`, "GET /x?c=1"), query(`0e5`, "GET /x?c=0"), query(`12.34e-1`, "GET /x?c=1.234"),
		{name: "digits without end", tool: tool("GET", "/x", parameter("query", "form", true)), args: `{"c":1e401}`, refused: "too many digits"},
		integer(`5.0`, "GET /x?c=5"), integer(`5.50`, "GET /x?c=5.50"), integer(`5e2`, "GET /x?c=500"), integer(`[1.0,2]`, "GET /x?c=1&c=2"),
		query(`" a+b%20c=d&e#f "`, "GET /x?c=%20a%2Bb%2520c%3Dd%26e%23f%20"), query(`"日本"`, "GET /x?c=%E6%97%A5%E6%9C%AC"),
		query(`"\u0000\r\n"`, "GET /x?c=%00%0D%0A"), query(`"-._~"`, "GET /x?c=-._~"), query(`"!*'()"`, "GET /x?c=%21%2A%27%28%29"),
		query(`[[1,2],{"a":"b c"}]`, "GET /x?c=%5B1%2C2%5D&c=%7B%22a%22%3A%22b%20c%22%7D"),
		{name: "all of them reserved", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", Style: "form", Explode: true, AllowReserved: true}),
			args: `{"c":":/?#[]@!$&'()*+,;=% "}`, want: "GET /x?c=:/?%23[]@!$%26'()*%2B,;=%25%20"},
		{name: "a name with brackets", tool: tool("GET", "/x", &openapi.Parameter{Name: "ids[]", In: "query", Style: "form", Explode: true}),
			args: `{"ids[]":[1,2]}`, want: "GET /x?ids%5B%5D=1&ids%5B%5D=2"},
		{name: "deep in depth", tool: tool("GET", "/x", parameter("query", "deepObject", true)),
			args: `{"c":{"a":{"b":[1,2],"d":null},"e":[{"f":"x y"},{"f":true}]}}`,
			want: "GET /x?c%5Ba%5D%5Bb%5D%5B%5D=1&c%5Ba%5D%5Bb%5D%5B%5D=2&c%5Be%5D%5B0%5D%5Bf%5D=x%20y&c%5Be%5D%5B1%5D%5Bf%5D=true"},
		{name: "arrays within csv", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", Style: "form", CollectionFormat: "pipes"}),
			args: `{"c":[["a","b"],["c"]]}`, want: "GET /x?c=a,b%7Cc"},
		{name: "content", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", ContentType: "application/json"}),
			args: "{\"c\":{\"a\": [1.0,\n9007199254740993]}}", want: "GET /x?c=%7B%22a%22%3A%5B1.0%2C9007199254740993%5D%7D"},
		{name: "content that is a string", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", ContentType: "application/json"}),
			args: `{"c":"a"}`, want: "GET /x?c=%22a%22"},
		{name: "content that is text", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", ContentType: "text/plain"}),
			args: `{"c":"a b"}`, want: "GET /x?c=a%20b"},
		{name: "content in a path", tool: tool("GET", "/x/{c}", &openapi.Parameter{Name: "c", In: "path", ContentType: "application/json"}),
			args: `{"c":{"a":"/"}}`, want: "GET /x/%7B%22a%22%3A%22%2F%22%7D"},
		{name: "content in a header", tool: tool("GET", "/x", &openapi.Parameter{Name: "C", In: "header", ContentType: "application/json"}),
			args: "{\"C\":{\"a\":\n[1, 2]}}", want: "GET /x\nC: {\"a\":[1,2]}"},
		{name: "content in a cookie", tool: tool("GET", "/x", &openapi.Parameter{Name: "C", In: "cookie", ContentType: "application/json"}),
			args: `{"C":{"a":1}}`, want: "GET /x\nCookie: C=%7B%22a%22%3A1%7D"},
		{name: "a cookie as given", tool: tool("GET", "/x", parameter("cookie", "cookie", true)), args: `{"c":"a%20b=c d"}`, want: "GET /x\nCookie: c=a%20b=c%20d"},
		{name: "the whole query", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "querystring", ContentType: httpio.Form}),
			args: `{"c":{"a":[1,2],"b c":"d&e"}}`, want: "GET /x?a=1&a=2&b%20c=d%26e"},
		{name: "the whole query as JSON", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "querystring", ContentType: "application/json"}),
			args: `{"c":{"a":1}}`, want: "GET /x?%7B%22a%22%3A1%7D"},
		{name: "several, in the order of the document", tool: tool("GET", "/x/{c}", parameter("path", "simple", false),
			&openapi.Parameter{Name: "b", In: "query", Style: "form"}, &openapi.Parameter{Name: "a", In: "query", Style: "form"},
			&openapi.Parameter{Name: "X-B", In: "header", Style: "simple"}, &openapi.Parameter{Name: "s", In: "cookie", Style: "form"}, &openapi.Parameter{Name: "t", In: "cookie", Style: "form"}),
			args: `{"a":1,"b":2,"c":3,"X-B":4,"s":5,"t":"6;7"}`, want: "GET /x/3?b=2&a=1\nCookie: s=5; t=6%3B7\nX-B: 4"},
		{name: "a query in the template", tool: tool("GET", "/x?action=list all#part", parameter("query", "form", true)), args: `{"c":1}`, want: "GET /x?action=list%20all&c=1"},
		{name: "a fragment in the template", tool: tool("GET", "/x#two"), args: ``, want: "GET /x"},
		{name: "what a template must not have", tool: tool("GET", `/a b/"c"/%41/é`), args: ``, want: "GET /a%20b/%22c%22/%41/%C3%A9"},
		{name: "two in a segment", tool: tool("GET", "/{c}.{d}", parameter("path", "simple", false), &openapi.Parameter{Name: "d", In: "path", Style: "simple"}), args: `{"c":"a","d":"b"}`, want: "GET /a.b"},
		{name: "a slash at the end", tool: tool("GET", "/x/"), args: ``, want: "GET /x/"},
		{name: "a path without a slash", tool: tool("DELETE", "x"), args: ``, want: "DELETE /x"},
		{name: "a reserved path", tool: tool("GET", "/f/{c}", &openapi.Parameter{Name: "c", In: "path", Style: "simple", AllowReserved: true}), args: `{"c":"a/b c?d#e%2F"}`, want: "GET /f/a/b%20c%3Fd%23e%252F"},
	})
}

// TestRefusals refuses arguments that would become more than a value.
func TestRefusals(t *testing.T) {
	path := func(value string) *openapi.Tool { return tool("DELETE", "/p/{c}", parameter("path", "simple", false)) }
	header := tool("GET", "/x", parameter("header", "simple", false))
	exploded := tool("GET", "/x", parameter("query", "form", true), &openapi.Parameter{Name: "limit", In: "query", Style: "form"})
	var cases []golden
	for _, v := range []string{`"."`, `".."`, `"../x"`, `"a/../b"`, `"..\\x"`, `"%2e%2e"`, `"..%2fx"`, `"%252e%252e"`, `"..;x=1"`, `"a/..;/b"`, `""`, `null`, `[]`, `["",""]`, `{}`} {
		want := "c: must not have . or .."
		switch v {
		case `""`:
			want = "c: must not be empty"
		case `null`, `[]`, `{}`:
			want = "c: is missing"
		case `["",""]`:
			continue // a comma
		}
		cases = append(cases, golden{name: "path", tool: path(v), args: `{"c":` + v + `}`, refused: want})
	}
	for _, v := range []string{`"a\u0000b"`, `"..\u0000"`, `"..%00"`, `"%2500"`} {
		cases = append(cases, golden{name: "NUL", tool: path(v), args: `{"c":` + v + `}`, refused: "c: must not contain a NUL character"})
	}
	for _, v := range []string{`"a\r\nX: y"`, `"a\nb"`, `"a\u0000b"`, `["a","b\nc"]`, `{"a\n":"b"}`} {
		cases = append(cases, golden{name: "header", tool: header, args: `{"c":` + v + `}`, refused: "c: has a line break"})
	}
	for _, name := range []string{"Host", "Content-Length", "transfer-encoding", "Connection", "Cookie", "Proxy-Authorization", "Accept-Encoding", "a b", "X\r\nY"} {
		cases = append(cases, golden{name: "header " + name, tool: tool("GET", "/x", &openapi.Parameter{Name: name, In: "header", Style: "simple"}),
			args: `{"` + string(rawjson.AppendString(nil, name)[1:len(rawjson.AppendString(nil, name))-1]) + `":"a"}`, refused: "an argument cannot set the header"})
	}
	dot := tool("GET", "/p/{c}.{d}", parameter("path", "simple", false), &openapi.Parameter{Name: "d", In: "path", Style: "simple"})
	open := tool("GET", "/f/{c}", &openapi.Parameter{Name: "c", In: "path", Style: "simple", AllowReserved: true})
	cases = append(cases,
		golden{name: "missing in a path", tool: path(""), args: `{}`, refused: "c: is missing"},
		golden{name: "no such parameter", tool: tool("GET", "/p/{d}"), args: `{}`, refused: "{d}"},
		golden{name: "label that is dots", tool: tool("GET", "/p/{c}", parameter("path", "label", false)), args: `{"c":"."}`, refused: "must not have . or .."},
		golden{name: "dots of the template and an argument", tool: tool("GET", "/p/{c}.", parameter("path", "matrix", false)), args: `{"c":""}`, want: "GET /p/;c."},
		golden{name: "a dot behind a dot", tool: tool("GET", "/p/.{c}", parameter("path", "simple", false)), args: `{"c":";x"}`, refused: "must not contain the segment"},
		golden{name: "dots together", tool: dot, args: `{"c":"","d":"."}`, refused: "must not be empty"},
		golden{name: "dots in a reserved path", tool: open, args: `{"c":"a/../../b"}`, refused: "c: must not have . or .."},
		golden{name: "a comma in a list in a header", tool: header, args: `{"c":["a,b"]}`, refused: `c: an item must not contain ","`},
		golden{name: "a separator in a name", tool: header, args: `{"c":{"a,b":1}}`, refused: "c: the name"},
		golden{name: "a dot in a label's list", tool: tool("GET", "/p/{c}", parameter("path", "label", true)), args: `{"c":["a.b"]}`, refused: `c: an item must not contain "."`},
		golden{name: "a bar between bars", tool: tool("GET", "/x", parameter("query", "pipeDelimited", false)), args: `{"c":["a|b"]}`, refused: "c: an item must not contain"},
		golden{name: "a comma in a reserved list", tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "query", Style: "form", AllowReserved: true}), args: `{"c":["a,b"]}`, refused: "c: an item must not contain"},
		golden{name: "another parameter's name", tool: exploded, args: `{"c":{"limit":1}}`, refused: "c: must not have a member called limit"},
		golden{name: "brackets in a name", tool: tool("GET", "/x", parameter("query", "deepObject", true)), args: `{"c":{"a][b":1}}`, refused: "c: a name must not contain ["},
	)
	runGolden(t, cases)
}

// TestClimbs finds .. behind wrong encodings, and where the template and an argument make it
// together.
func TestClimbs(t *testing.T) {
	runGolden(t, []golden{
		{name: "behind a lone %", tool: tool("GET", "/p/{c}", parameter("path", "simple", false)), args: `{"c":"%2e%2e/%zz"}`, refused: "c: must not have . or .."},
		{name: "together with the template", tool: tool("GET", "/p/.{c}", parameter("path", "simple", false)), args: `{"c":"./x"}`, refused: "the path must not contain the segment"},
		{name: "a percentage", tool: tool("GET", "/p/{c}", parameter("path", "simple", false)), args: `{"c":"100%"}`, want: "GET /p/100%25"},
		{name: "a hidden file", tool: tool("GET", "/p/.{c}", parameter("path", "simple", false)), args: `{"c":"x/y"}`, want: "GET /p/.x%2Fy"},
	})
}

// TestRenamedTwice: a changed name and the document's own are one name.
func TestRenamedTwice(t *testing.T) {
	x := with(tool("POST", "/x"), &openapi.MediaType{Type: "application/json"})
	x.Keys = map[string]string{"a_b": "a b"}
	runGolden(t, []golden{
		{name: "both", tool: x, args: `{"body":{"o":[{"a_b":1,"a b":2}]}}`, refused: "body: has a b twice"},
		{name: "both, the other way", tool: x, args: `{"body":{"a b":2,"a_b":1}}`, refused: "body: has a b twice"},
		{name: "one", tool: x, args: `{"body":{"a_b":1,"o":{"a b":2}}}`, want: "POST /x\nContent-Type: application/json\n\n" + `{"a b":1,"o":{"a b":2}}`},
	})
}
