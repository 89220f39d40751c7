package wire

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// sentBy returns a request as a server reads it.
func sentBy(t *testing.T, p *Plan) (*http.Request, []byte) {
	t.Helper()
	var wire bytes.Buffer
	if err := p.request(t.Context()).Write(&wire); err != nil {
		t.Fatalf("it cannot be written: %v", err)
	}
	r, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("it cannot be read: %v\n%q", err, wire.Bytes())
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("its body cannot be read: %v", err)
	}
	return r, b
}

// For any value, the server that reads the request finds that value in its place and nothing
// elsewhere, or there is no request.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"a", "", ".", "..", "../..", "a/b", "a&b=c", "a=b", "a#b?c", "a;b", "a,b", "a|b", "a b", "a+b", "%2e%2e%2f", "%00", "\r\nX-Evil: 1", "\x00", "é", "\xff", "日本語",
		"\"", `a"; filename="x`, "\\", "--boundary", "{c}", "$&", "[]", "a[b]", strings.Repeat("x", 5000), "http://evil.example.com/", "//evil.example.com", "@evil", ":80", " a ", "\t"} {
		f.Add(seed, seed)
		f.Add("x", seed)
	}
	query := func(name, style string, explode, reserved bool) *openapi.Parameter {
		return &openapi.Parameter{Name: name, In: openapi.InQuery, Style: style, Explode: explode, AllowReserved: reserved}
	}
	x := tool("POST", "/before/{p}/after",
		&openapi.Parameter{Name: "p", In: openapi.InPath, Style: "simple"},
		query("s", "form", true, false), query("r", "form", true, true), query("l", "form", true, false), query("d", "deepObject", true, false), query("last", "form", true, false),
		&openapi.Parameter{Name: "X-H", In: openapi.InHeader, Style: "simple"},
		&openapi.Parameter{Name: "ck", In: openapi.InCookie, Style: "form", Explode: true},
	)
	jsonTool, formTool, partsTool := *x, *x, *x
	jsonTool = *with(&jsonTool, &openapi.MediaType{Type: httpio.JSON})
	formTool = *with(&formTool, &openapi.MediaType{Type: httpio.Form})
	partsTool = *with(&partsTool, &openapi.MediaType{Type: "multipart/form-data", Fields: []*openapi.Field{{Name: "v"}, {Name: "f", File: true}}})
	s := newSource(f, Options{BaseURL: "http://api.example.com/base"})
	f.Fuzz(func(t *testing.T, v, w string) {
		q := func(s string) string { return string(rawjson.AppendString(nil, s)) }
		v, w = strings.ToValidUTF8(v, "\ufffd"), strings.ToValidUTF8(w, "\ufffd") // as JSON has it
		params := func(path, header string) string {
			return `{"p":` + q(path) + `,"s":` + q(v) + `,"r":` + q(v) + `,"l":[` + q(v) + `,` + q(w) + `],"d":{"k":` + q(v) + `},"last":"end","X-H":` + q(header) + `,"ck":` + q(v)
		}
		for kind, c := range map[string]*openapi.Tool{"json": &jsonTool, "form": &formTool, "parts": &partsTool} {
			tail := `,"body":{"v":` + q(v) + `,"f":{"text":` + q(w) + `,"filename":"n"},"z":` + q(w) + `}}`
			path, header := v, v
			p, err := s.Plan(&Call{Tool: c, Args: []byte(params(path, header) + tail)})
			if err != nil { // the path or the header is refused: nothing else may be
				path, header = "fine", "fine"
				if p, err = s.Plan(&Call{Tool: c, Args: []byte(params(path, header) + tail)}); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			r, b := sentBy(t, p)
			if r.Host != "api.example.com" || r.Method != "POST" {
				t.Fatalf("%s to %s", r.Method, r.Host)
			}
			segments := strings.Split(strings.TrimPrefix(strings.SplitN(r.RequestURI, "?", 2)[0], "/"), "/")
			if len(segments) != 4 || segments[0] != "base" || segments[1] != "before" || segments[3] != "after" {
				t.Fatalf("%q is in the path %s", path, r.RequestURI)
			}
			if got, err := url.PathUnescape(segments[2]); got != path || err != nil {
				t.Fatalf("the segment is %q, want %q", got, path)
			}
			values, err := url.ParseQuery(r.URL.RawQuery)
			for name := range values {
				if !strings.Contains("s r l d[k] last", name) {
					t.Fatalf("%q: there is a parameter %q: %s", v, name, r.URL.RawQuery)
				}
			}
			// The document asks for reserved characters: semicolons stay as they are, and Go's
			// parser refuses those.
			if err == nil || !strings.Contains(v, ";") {
				for name, want := range map[string][]string{"s": {v}, "r": {v}, "l": {v, w}, "d[k]": {v}, "last": {"end"}} {
					if got := values[name]; strings.Join(got, "\x00") != strings.Join(want, "\x00") || err != nil {
						t.Fatalf("%s is %q, want %q: %s, %v", name, got, want, r.URL.RawQuery, err)
					}
				}
			}
			if got := r.Header["X-H"]; len(got) != 1 || got[0] != strings.Trim(header, " \t") {
				t.Fatalf("the header is %q, want %q", got, header)
			}
			if len(r.Header) > 7 {
				t.Fatalf("there are other headers: %v", r.Header)
			}
			if got := r.Cookies(); len(got) != 1 || got[0].Name != "ck" {
				t.Fatalf("the cookies are %v", got)
			} else if value, err := url.PathUnescape(got[0].Value); value != v || err != nil {
				t.Fatalf("the cookie is %q, want %q", value, v)
			}
			switch kind {
			case "json":
				if want := strings.TrimPrefix(strings.TrimSuffix(tail, "}"), `,"body":`); string(b) != want {
					t.Fatalf("the body is %q, want %q", b, want)
				}
			case "form":
				got, err := url.ParseQuery(string(b))
				if err != nil || len(got) != 3 || got.Get("v") != v || got.Get("z") != w {
					t.Fatalf("the form is %q, %v", b, err)
				}
			case "parts":
				_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
				if err != nil {
					t.Fatal(err)
				}
				form, err := multipart.NewReader(bytes.NewReader(b), params["boundary"]).ReadForm(1 << 20)
				if err != nil || len(form.Value) != 2 || len(form.File) != 1 || form.Value["v"][0] != v || form.Value["z"][0] != w {
					t.Fatalf("the parts are %v, %v: %q", form, err, b)
				}
			}
		}
	})
}

// Models choose the names of members too.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a", "", "a&b", "a=b", "a[b]", "s", "a\r\nb", `a"b`, "\x00", "é", "%26", "a;b"} {
		f.Add(seed)
	}
	spread := tool("POST", "/x", parameter("query", "form", true), &openapi.Parameter{Name: "s", In: openapi.InQuery, Style: "form"})
	deep := tool("POST", "/x", parameter("query", "deepObject", true))
	form := with(tool("POST", "/x"), &openapi.MediaType{Type: httpio.Form})
	parts := with(tool("POST", "/x"), &openapi.MediaType{Type: "multipart/form-data"})
	s := newSource(f, Options{BaseURL: "http://api.example.com"})
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.ToValidUTF8(name, "\ufffd")
		object := `{` + string(rawjson.AppendString(nil, name)) + `:"v"}`
		for kind, c := range map[string]*openapi.Tool{"c": spread, "c[": deep, "form": form, "parts": parts} {
			args := `{"c":` + object + `}`
			if c.Body != nil {
				args = `{"body":` + object + `}`
			}
			p, err := s.Plan(&Call{Tool: c, Args: []byte(args)})
			if err != nil {
				continue
			}
			r, b := sentBy(t, p)
			want := url.Values{name: {"v"}}
			switch kind {
			case "c[":
				want = url.Values{"c[" + name + "]": {"v"}}
				fallthrough
			case "c":
				if got, err := url.ParseQuery(r.URL.RawQuery); err != nil || got.Encode() != want.Encode() || name == "s" && kind == "c" {
					t.Fatalf("%q becomes %s", name, r.URL.RawQuery)
				}
			case "form":
				if got, err := url.ParseQuery(string(b)); err != nil || got.Encode() != want.Encode() {
					t.Fatalf("%q becomes %s", name, b)
				}
			case "parts":
				_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
				if err != nil {
					t.Fatal(err)
				}
				part, err := multipart.NewReader(bytes.NewReader(b), params["boundary"]).NextRawPart()
				if err != nil || part.FormName() != name || len(part.Header) != 1 {
					t.Fatalf("%q becomes %q: %v", name, b, err)
				}
			}
		}
	})
}
