package param_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// TestBodies writes every kind of body.
func TestBodies(t *testing.T) {
	body := func(m openapi.MediaType) *openapi.Tool { return with(tool("POST", "/x"), &m) }
	form := func(fields ...*openapi.Field) *openapi.Tool {
		return body(openapi.MediaType{Type: httpio.Form, Fields: fields})
	}
	head := func(t, b string) string { return "POST /x\nContent-Type: " + t + "\n\n" + b }
	flat := tool("PATCH", "/x")
	flat.Body = &openapi.MediaType{Type: "application/json"}
	flat.Arguments = append(flat.Arguments, openapi.Argument{Name: "user_name", Place: "body", Field: "user name"}, openapi.Argument{Name: "b", Place: "body", Field: "b"})
	must := tool("PATCH", "/x")
	must.Body, must.Operation.Body = flat.Body, &openapi.Body{Required: true}
	must.Arguments = append(must.Arguments, openapi.Argument{Name: "b", Place: "body", Field: "b"})
	keys := body(openapi.MediaType{Type: "application/json"})
	keys.Keys = map[string]string{"a_b": "a/b"}
	runGolden(t, []golden{
		{name: "JSON keeps its bytes", tool: body(openapi.MediaType{Type: "application/json"}), args: `{"body": {"b" : 1.50, "a":null, "n":9007199254740993, "e":1e3,"t":"\u0041"} }`,
			want: head("application/json", `{"b" : 1.50, "a":null, "n":9007199254740993, "e":1e3,"t":"\u0041"}`)},
		{name: "JSON scalar", tool: body(openapi.MediaType{Type: "application/json"}), args: `{"body":"a"}`, want: head("application/json", `"a"`)},
		{name: "JSON null", tool: body(openapi.MediaType{Type: "application/json"}), args: `{"body":null}`, want: head("application/json", `null`)},
		{name: "JSON of a kind", tool: body(openapi.MediaType{Type: "application/merge-patch+json; charset=utf-8"}), args: `{"body":{"a":null}}`, want: head("application/merge-patch+json; charset=utf-8", `{"a":null}`)},
		{name: "JSON by a wildcard", tool: body(openapi.MediaType{Type: "*/*"}), args: `{"body":{"a":1}}`, want: head("application/json", `{"a":1}`)},
		{name: "no body", tool: body(openapi.MediaType{Type: "application/json"}), args: `{}`, want: "POST /x"},
		{name: "names that were changed", tool: keys, args: `{"body":{"a_b":[{"a_b":1}],"c":"a_b"}}`, want: head("application/json", `{"a/b":[{"a/b":1}],"c":"a_b"}`)},
		{name: "flattened, in the order of the document", tool: flat, args: `{"b":[1, 2],"user_name":"x"}`, want: "PATCH /x\nContent-Type: application/json\n\n" + `{"user name":"x","b":[1, 2]}`},
		{name: "flattened, without a field", tool: flat, args: `{}`, want: "PATCH /x"},
		{name: "flattened and required, without a field", tool: must, args: `{}`, want: "PATCH /x\nContent-Type: application/json\n\n{}"},
		{name: "lines", tool: body(openapi.MediaType{Type: "application/x-ndjson"}), args: "{\"body\":[{\"a\":\n1},2]}", want: head("application/x-ndjson", "{\"a\":1}\n2\n")},
		{name: "text", tool: body(openapi.MediaType{Type: "text/plain"}), args: `{"body":"a\nb"}`, want: head("text/plain", "a\nb")},
		{name: "text that is a number", tool: body(openapi.MediaType{Type: "text/plain"}), args: `{"body":1e2}`, want: head("text/plain", "100")},
		{name: "XML", tool: body(openapi.MediaType{Type: "application/xml"}), args: `{"body":"<a>1</a>"}`, want: head("application/xml", "<a>1</a>")},
		{name: "bytes", tool: body(openapi.MediaType{Type: "application/octet-stream", File: true}), args: `{"body":{"data":"AAEC/w=="}}`, want: head("application/octet-stream", "\x00\x01\x02\xff")},
		{name: "bytes of a type", tool: body(openapi.MediaType{Type: "application/octet-stream", File: true}), args: `{"body":{"data":"AAEC_w","type":"image/png"}}`, want: head("image/png", "\x00\x01\x02\xff")},
		{name: "bytes by a wildcard", tool: body(openapi.MediaType{Type: "image/*", File: true}), args: `{"body":"data:image/gif;base64,R0lG"}`, want: head("image/gif", "GIF")},
		{name: "bytes of one type only", tool: body(openapi.MediaType{Type: "image/png", File: true}), args: `{"body":"data:image/gif;base64,R0lG"}`, want: head("image/png", "GIF")},
		{name: "bytes as text", tool: body(openapi.MediaType{Type: "text/csv", File: true}), args: `{"body":{"text":"a,b\r\n"}}`, want: head("text/csv", "a,b\r\n")},
		{name: "bytes as a string", tool: body(openapi.MediaType{Type: "application/octet-stream", File: true}), args: `{"body":"plain"}`, want: head("application/octet-stream", "plain")},
		{name: "a data URI without base64", tool: body(openapi.MediaType{Type: "application/octet-stream", File: true}), args: `{"body":"data:,a%20b"}`, want: head("application/octet-stream", "a b")},
		{name: "form", tool: form(), args: `{"body":{"a":"b c&d=é","n":1.0,"t":true,"z":null,"l":[1,"x"],"o":{"k": [1]}}}`,
			want: head(httpio.Form, "a=b%20c%26d%3D%C3%A9&n=1.0&t=true&l=1&l=x&o=%7B%22k%22%3A%5B1%5D%7D")},
		{name: "form in the order of the document", tool: form(&openapi.Field{Name: "b"}, &openapi.Field{Name: "a", Type: "integer"}), args: `{"body":{"x":1,"a":2.0,"b":3}}`, want: head(httpio.Form, "b=3&a=2&x=1")},
		{name: "form styled", tool: form(&openapi.Field{Name: "o", Styled: true, Style: "deepObject", Explode: true}, &openapi.Field{Name: "l", Styled: true, Style: "form"}, &openapi.Field{Name: "p", Styled: true, Style: "pipeDelimited"}, &openapi.Field{Name: "r", Styled: true, Style: "form", AllowReserved: true}),
			args: `{"body":{"o":{"a":1,"b":{"c":2}},"l":["x","y z"],"p":[1,2],"r":"a/b&c"}}`, want: head(httpio.Form, "o%5Ba%5D=1&o%5Bb%5D%5Bc%5D=2&l=x,y%20z&p=1%7C2&r=a/b%26c")},
		{name: "form exploded object", tool: form(&openapi.Field{Name: "o", Styled: true, Style: "form", Explode: true}), args: `{"body":{"o":{"a":1}}}`, want: head(httpio.Form, "a=1")},
		{name: "form of Swagger 2.0", tool: form(&openapi.Field{Name: "l", CollectionFormat: "csv"}, &openapi.Field{Name: "m", CollectionFormat: "multi"}), args: `{"body":{"l":[1,2],"m":[1,2]}}`, want: head(httpio.Form, "l=1,2&m=1&m=2")},
		{name: "form with JSON", tool: form(&openapi.Field{Name: "l", ContentType: "application/json"}), args: `{"body":{"l":[1,2]}}`, want: head(httpio.Form, "l=%5B1%2C2%5D")},
		{name: "form with a file", tool: form(&openapi.Field{Name: "f", File: true}), args: `{"body":{"f":{"data":"YSZi"}}}`, want: head(httpio.Form, "f=a%26b")},
		{name: "form exploded object in a multipart", tool: body(openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "o", Styled: true, Style: "form", Explode: true}, {Name: "admin"}}}), args: `{"body":{"o":{"admin":1}}}`, refused: "must not have a member called admin"},
		{name: "a line break in a multipart's name", tool: body(openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "o", Styled: true, Style: "deepObject", Explode: true}}}), args: `{"body":{"o":{"a\r\n":1}}}`, refused: "control character"},
		{name: "an object in place of parts", tool: body(openapi.MediaType{Type: "multipart/mixed", Items: []*openapi.Field{{}}}), args: `{"body":{}}`, refused: "body: must be an array"},
		{name: "a part that is no file", tool: body(openapi.MediaType{Type: "multipart/mixed", Items: []*openapi.Field{{}, {File: true}}}), args: `{"body":["a", 5]}`, refused: "body[1]: "},
		{name: "text by a wildcard", tool: body(openapi.MediaType{Type: "text/*"}), args: `{"body":"a"}`, want: head("text/plain; charset=utf-8", "a")},
		{name: "a data URI with a type of its own", tool: body(openapi.MediaType{Type: "*/*", File: true}), args: `{"body":{"data":"data:image/gif;base64,R0lG","type":"image/webp"}}`, want: head("image/webp", "GIF")},
		{name: "a data URI with parameters only", tool: body(openapi.MediaType{Type: "*/*", File: true}), args: `{"body":"data:;charset=utf-8,a"}`, want: head("text/plain;charset=utf-8", "a")},
		{name: "a file of nothing known", tool: body(openapi.MediaType{Type: "*/*", File: true}), args: `{"body":{"data":""}}`, want: "POST /x\nContent-Type: application/octet-stream"},
		{name: "base64 over lines", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":{"data":"AAEC\r\n/w=="}}`, want: head(httpio.Bytes, "\x00\x01\x02\xff")},

		{name: "a file that is none", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":{"name":"x"}}`, refused: "a file is"},
		{name: "form of another field", tool: form(&openapi.Field{Name: "o", Styled: true, Style: "form", Explode: true}, &openapi.Field{Name: "admin"}), args: `{"body":{"o":{"admin":1}}}`, refused: "must not have a member called admin"},
		{name: "form that is none", tool: form(), args: `{"body":"a"}`, refused: "body: must be an object"},
		{name: "not base64", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":{"data":"$$$"}}`, refused: "not base64"},
		{name: "not a file", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":7}`, refused: "a file is"},
		{name: "two files", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":{"data":"","text":""}}`, refused: "not both"},
		{name: "a type with a line break", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":{"text":"","type":"a/b\r\nX: y"}}`, refused: "not a media type"},
		{name: "a data URI without end", tool: body(openapi.MediaType{Type: httpio.Bytes, File: true}), args: `{"body":"data:text/plain"}`, refused: "no comma"},
		{name: "a filename with a line break", tool: body(openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "f", File: true}}}), args: `{"body":{"f":{"text":"","filename":"a\r\nb"}}}`, refused: "control character"},
		{name: "a name with a line break", tool: body(openapi.MediaType{Type: "multipart/form-data"}), args: `{"body":{"f\r\n":1}}`, refused: "control character"},
		{name: "a multipart that is none", tool: body(openapi.MediaType{Type: "multipart/form-data"}), args: `{"body":[1]}`, refused: "body: must be an object"},
	})
}

func TestFileLimit(t *testing.T) {
	up := with(tool("POST", "/x"), &openapi.MediaType{Type: httpio.Bytes, File: true})
	small := param.Options{MaxFile: 4}
	if _, err := param.Assemble(up, []byte(`{"body":{"text":"12345"}}`), small); err == nil || !strings.Contains(err.Error(), "has 5 bytes, and 4 are allowed") {
		t.Errorf("a file of 5 bytes: %v", err)
	}
	if _, err := param.Assemble(up, []byte(`{"body":{"text":"1234"}}`), small); err != nil {
		t.Errorf("a file of 4 bytes: %v", err)
	}
}

// TestMultipart reads the parts back with the standard library: heads and contents are as given, in
// the order of the document.
func TestMultipart(t *testing.T) {
	m := &openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{
		{Name: "id", Type: "integer"},
		{Name: "meta", Type: "object"},
		{Name: "pic", File: true, ContentType: "image/png, image/jpeg"},
		{Name: "docs", File: true, Array: true},
		{Name: "tags", Array: true},
		{Name: "csv", Array: true, CollectionFormat: "csv"},
		{Name: "note", ContentType: "text/markdown"},
		{Name: "raw", ContentType: "application/json"},
		{Name: "deep", Styled: true, Style: "deepObject", Explode: true},
		{Name: "list", Styled: true, Style: "pipeDelimited", Array: true},
		{Name: "head", File: true, Headers: []*openapi.Parameter{{Name: "X-Rate", Value: "9"}, {Name: "Content-Type", Value: "evil/x"}, {Name: "X-None"}, {Name: "X-Bad", Value: "a\r\nb"}}},
	}}
	up := with(tool("POST", "/x"), m)
	args := `{"body":{"other":"\r\n--x\r\n","tags":["a",1],"id":5.0,"meta":{"a": 1.50},"csv":["x","y"],"note":"# hi","raw":"s","nil":null,"list":[1,2],
		"pic":{"data":"iVBO","filename":"../a\"b.jpg","type":"image/jpeg"},"docs":[{"text":"one"},null,"data:text/csv,a%2Cb"],"deep":{"k":"v"},
		"head":{"text":"h"},"we\"ird":"q"}}`
	want := []string{
		`form-data; name="id"| |5`,
		`form-data; name="meta"|application/json|{"a":1.50}`,
		`form-data; name="pic"; filename="a\"b.jpg"|image/jpeg|` + "\x89PN",
		`form-data; name="docs"; filename="docs"|application/octet-stream|one`,
		`form-data; name="docs"; filename="docs"|text/csv|a,b`,
		`form-data; name="tags"| |a`,
		`form-data; name="tags"| |1`,
		`form-data; name="csv"| |x,y`,
		`form-data; name="note"|text/markdown|# hi`,
		`form-data; name="raw"|application/json|"s"`,
		`form-data; name="deep[k]"| |v`,
		`form-data; name="list"| |1|2`,
		`form-data; name="head"; filename="head"|application/octet-stream|h|9`,
		`form-data; name="other"| |` + "\r\n--x\r\n",
		`form-data; name="we\"ird"| |q`,
	}
	var first []byte
	for range 2 {
		q, err := param.Assemble(up, []byte(args), options)
		if err != nil {
			t.Fatal(err)
		}
		kind, params, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
		if err != nil || kind != "multipart/form-data" {
			t.Fatalf("Content-Type %q", q.Header.Get("Content-Type"))
		}
		var got []string
		for r := multipart.NewReader(bytes.NewReader(q.Body), params["boundary"]); ; {
			p, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(p)
			kind := p.Header.Get("Content-Type")
			if kind == "" {
				kind = " "
			}
			line := p.Header.Get("Content-Disposition") + "|" + kind + "|" + string(b)
			if rate := p.Header.Get("X-Rate"); rate != "" {
				line += "|" + rate
			}
			got = append(got, line)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if first != nil && !bytes.Equal(first, q.Body) {
			t.Error("the same call is another request the second time")
		}
		first = q.Body
	}
}

// TestParts writes a body whose parts have no names.
func TestParts(t *testing.T) {
	up := with(tool("POST", "/x"), &openapi.MediaType{Type: "multipart/mixed", Items: []*openapi.Field{{Type: "object"}, {File: true, ContentType: "image/png"}, {ContentType: "text/plain"}}})
	r, err := param.Assemble(up, []byte(`{"body":[{"a":1.50},{"data":"iVBO"},"x","y"]}`), options)
	if err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatal(kind, err)
	}
	var got []string
	for parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"]); ; {
		p, err := parts.NextPart()
		if err != nil {
			break
		}
		text, _ := io.ReadAll(p)
		got = append(got, p.Header.Get("Content-Disposition")+p.Header.Get("Content-Type")+" "+string(text))
	}
	if want := `application/json {"a":1.50}|image/png ` + "\x89PN" + `|text/plain x|text/plain y`; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
