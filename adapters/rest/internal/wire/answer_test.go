package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// answering serves one answer.
func answering(t testing.TB, status int, kind, body string, headers ...string) *recorder {
	h := http.Header{"Content-Type": nil}
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return answeringWith(t, status, h, body)
}

// answeringWith serves one answer with these headers.
func answeringWith(t testing.TB, status int, header http.Header, body string) *recorder {
	return newRecorder(t, func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

const anyObject = `{"type":"object"}`

func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		name         string
		status       int
		kind, body   string
		schema       string
		wrapped      bool
		result, pick string
		want         string // the whole result
	}{
		{name: "object", status: 200, kind: "application/json", body: "{\"a\": 9007199254740993,\n\"b\":1.50}",
			want: `{"content":[{"type":"text","text":"{\"a\": 9007199254740993,\n\"b\":1.50}"}],"structuredContent":{"a":9007199254740993,"b":1.50}}`},
		{name: "array", status: 200, kind: "application/json", body: `[1]`, want: `{"content":[{"type":"text","text":"[1]"}]}`},
		{name: "array with a schema", status: 200, kind: "application/json", body: `[1]`, schema: `{"type":"object","properties":{"result":{"type":"array"}}}`, wrapped: true,
			want: `{"content":[{"type":"text","text":"[1]"}],"structuredContent":{"result":[1]}}`},
		{name: "object with a schema", status: 200, kind: "application/hal+json", body: `{"a":1}`, schema: anyObject, want: `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{name: "object that does not fit", status: 200, kind: "application/json", body: `{"a":"x"}`, schema: `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`,
			want: `{"content":[{"type":"text","text":"{\"a\":\"x\"}"}]}`},
		{name: "a member twice", status: 200, kind: "application/json", body: `{"a":"x","a":2,"b":3}`, schema: `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`,
			want: `{"content":[{"type":"text","text":"{\"a\":\"x\",\"a\":2,\"b\":3}"}],"structuredContent":{"a":"x","a":2,"b":3}}`},
		{name: "a number of too many digits", status: 200, kind: "application/json", body: `{"a":1e99999}`, schema: `{"type":"object","properties":{"a":{"type":["number","null"]}}}`,
			want: `{"content":[{"type":"text","text":"{\"a\":1e99999}"}],"structuredContent":{"result":{"a":1e99999}}}`},
		{name: "scalar where an object was said", status: 200, kind: "application/json", body: `7`, schema: anyObject, want: `{"content":[{"type":"text","text":"7"}],"structuredContent":{"result":7}}`},
		{name: "picked", status: 200, kind: "application/json", body: `{"a":[{"b":1,"c":2},{"b":3}]}`, schema: anyObject, pick: "a.#.b", want: `{"content":[{"type":"text","text":"[1,3]"}],"structuredContent":{"result":[1,3]}}`},
		{name: "shaped and picked", status: 200, kind: "application/json", body: `{"a":[{"b":1,"c":2},{"b":3,"c":9}]}`, result: "a.#.{b}", pick: "1", want: `{"content":[{"type":"text","text":"{\"b\":3}"}],"structuredContent":{"b":3}}`},
		{name: "shaped by what is not there", status: 200, kind: "application/json", body: `[1]`, result: "x", want: `{"content":[{"type":"text","text":"[1]"}]}`},
		{name: "picked what is not there", status: 200, kind: "application/json", body: `[{"a":1,"b":2}]`, pick: "c",
			want: `{"content":[{"type":"text","text":"[{\"a\":1,\"b\":2}]"},{"type":"text","text":"Nothing in the answer matches \"c\": it is given whole. It is an array of 1 items; # stands for each. There are a, b."}]}`},
		{name: "picked with a modifier that grows", status: 200, kind: "application/json", body: `[1]`, pick: "@tostr", want: `{"content":[{"type":"text","text":"[1]"},{"type":"text","text":"The path to pick has the modifier @tostr, which cannot be used: the answer is given whole."}]}`},
		{name: "JSON without a type", status: 200, body: `{"a":1}`, want: `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{name: "JSON as text", status: 200, kind: "text/plain", body: `{"a":1}`, want: `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{name: "JSON with a mark", status: 200, kind: "application/json", body: "\ufeff{}", want: `{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}`},
		{name: "says JSON and is not", status: 200, kind: "application/json", body: `{oops`, want: `{"content":[{"type":"text","text":"{oops"}]}`},
		{name: "text", status: 200, kind: "text/plain; charset=utf-8", body: "a\"\\\n\t\x01é", want: `{"content":[{"type":"text","text":"a\"\\\n\t\u0001é"}]}`},
		{name: "text in Latin 1", status: 200, kind: "text/plain; charset=ISO-8859-1", body: "caf\xe9", want: `{"content":[{"type":"text","text":"café"}]}`},
		{name: "text in UTF-16", status: 200, kind: `text/plain; charset="utf-16le"`, body: "a\x00b\x00", want: `{"content":[{"type":"text","text":"ab"}]}`},
		{name: "text in Shift JIS", status: 200, kind: "text/html;charset=Shift_JIS", body: "\x93\xfa\x96\x7b", want: `{"content":[{"type":"text","text":"日本"}]}`},
		{name: "text in nobody knows what", status: 200, kind: "text/plain", body: "caf\xe9", want: `{"content":[{"type":"text","text":"café"}]}`},
		{name: "XML", status: 200, kind: "application/xml", body: "<a/>", want: `{"content":[{"type":"text","text":"<a/>"}]}`},
		{name: "drawing", status: 200, kind: "image/svg+xml", body: "<svg/>", want: `{"content":[{"type":"text","text":"<svg/>"}]}`},
		{name: "image", status: 200, kind: "image/png", body: "\x89PNG", want: `{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}]}`},
		{name: "sound", status: 200, kind: "audio/wav; x=y", body: "RIFF", want: `{"content":[{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"}]}`},
		{name: "file", status: 200, kind: "application/pdf", body: "%PDF", want: `{"content":[{"type":"resource","resource":{"uri":"rest://api/x/y%20z","mimeType":"application/pdf","blob":"JVBERg=="}}]}`},
		{name: "file of a strange type", status: 200, kind: `x"y`, body: "%PDF", want: `{"content":[{"type":"resource","resource":{"uri":"rest://api/x/y%20z","mimeType":"application/octet-stream","blob":"JVBERg=="}}]}`},
		{name: "text where an object was said", status: 200, kind: "text/plain", body: "fine", schema: anyObject, want: `{"content":[{"type":"text","text":"fine"}],"structuredContent":{"result":"fine"}}`},
		{name: "text where a list was said", status: 200, kind: "text/plain", body: "fine", schema: `{"type":"object","properties":{"result":{"type":"array"}}}`, wrapped: true,
			want: `{"content":[{"type":"text","text":"fine"}],"structuredContent":{}}`},
		{name: "events where an object was said", status: 200, kind: "text/event-stream", body: "data: {\"a\":1}\n\ndata: {}\n\n", schema: anyObject,
			want: `{"content":[{"type":"text","text":"{\"a\":1}\n{}"}],"structuredContent":{"result":"{\"a\":1}\n{}"}}`},
		{name: "image where an object was said", status: 200, kind: "image/png", body: "\x89PNG", schema: anyObject,
			want: `{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}],"structuredContent":{"result":"The answer is of type image/png and has 4 bytes."}}`},
		{name: "file where an object was said", status: 200, kind: "application/pdf", body: "%PDF", schema: anyObject,
			want: `{"content":[{"type":"resource","resource":{"uri":"rest://api/x/y%20z","mimeType":"application/pdf","blob":"JVBERg=="}}],"structuredContent":{"result":"The answer is of type application/pdf and has 4 bytes."}}`},
		{name: "nothing", status: 204, want: `{"content":[{"type":"text","text":"204 No Content"}]}`},
		{name: "nothing with a schema", status: 204, schema: anyObject, want: `{"content":[{"type":"text","text":"204 No Content"}],"structuredContent":{}}`},
		{name: "nothing to reset", status: 205, want: `{"content":[{"type":"text","text":"205 Reset Content"}]}`},
		{name: "created, and empty", status: 201, kind: "application/json", want: `{"content":[{"type":"text","text":"201 Created"}]}`},

		{name: "not found", status: 404, kind: "application/json", body: `{"message":"no pet 9"}`, want: `{"content":[{"type":"text","text":"404 Not Found from GET /x/y%20z\nno pet 9"}],"isError":true}`},
		{name: "problem", status: 422, kind: "application/problem+json", body: `{"type":"about:blank","title":"Unfit","detail":"age is low","invalid-params":[{"name":"age","reason":"min 1"}]}`,
			want: `{"content":[{"type":"text","text":"422 Unprocessable Entity from GET /x/y%20z\nUnfit\nage is low\n- {\"name\":\"age\",\"reason\":\"min 1\"}"}],"isError":true}`},
		{name: "error within", status: 400, kind: "application/json", body: `{"error":{"code":"bad","message":"Wrong","details":["one",{"field":"x"}]}}`,
			want: `{"content":[{"type":"text","text":"400 Bad Request from GET /x/y%20z\nWrong\ncode: bad\n- one\n- {\"field\":\"x\"}"}],"isError":true}`},
		{name: "details as FastAPI has them", status: 422, kind: "application/json", body: `{"detail":[{"loc":["body","a"],"msg":"field required"}]}`,
			want: `{"content":[{"type":"text","text":"422 Unprocessable Entity from GET /x/y%20z\n{\"detail\":[{\"loc\":[\"body\",\"a\"],\"msg\":\"field required\"}]}"}],"isError":true}`},
		{name: "error of OAuth", status: 400, kind: "application/json", body: `{"error":"invalid_scope","error_description":"no such"}`, want: `{"content":[{"type":"text","text":"400 Bad Request from GET /x/y%20z\ninvalid_scope\nno such"}],"isError":true}`},
		{name: "error that is not understood", status: 409, kind: "application/json", body: `{"x": [1]}`, want: `{"content":[{"type":"text","text":"409 Conflict from GET /x/y%20z\n{\"x\":[1]}"}],"isError":true}`},
		{name: "page", status: 501, kind: "text/html", body: "<html><head><title>\n Nope </title><body>long", want: `{"content":[{"type":"text","text":"501 Not Implemented from GET /x/y%20z\nNope"}],"isError":true}`},
		{name: "error with bytes", status: 400, kind: "image/png", body: "\x89PNG", want: `{"content":[{"type":"text","text":"400 Bad Request from GET /x/y%20z\n(4 bytes of image/png)"}],"isError":true}`},
		{name: "error without a body", status: 418, want: `{"content":[{"type":"text","text":"418 I'm a teapot from GET /x/y%20z"}],"isError":true}`},
		{name: "a status of its own", status: 499, kind: "text/plain", body: "no", want: `{"content":[{"type":"text","text":"499 from GET /x/y%20z\nno"}],"isError":true}`},
		{name: "not modified", status: 304, want: `{"content":[{"type":"text","text":"304 Not Modified"}]}`},
	} {
		srv := answering(t, tc.status, tc.kind, tc.body)
		s := newSource(t, Options{Name: "api", BaseURL: srv.URL})
		x := tool("GET", "/x/{c}", parameter("path", "simple", false))
		x.Wrapped = tc.wrapped
		if tc.schema != "" {
			x.OutputSchema = []byte(tc.schema)
		}
		got := call(t, s, &Call{Tool: x, Args: []byte(`{"c":"y z"}`), Result: tc.result, Pick: tc.pick})
		if got.Raw != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got.Raw, tc.want)
		}
	}
}

// Long answers stay valid, only shorter.
func TestCut(t *testing.T) {
	var items []string
	for i := range 5000 {
		items = append(items, fmt.Sprintf(`{"id":%d,"name":"pet number %d"}`, i, i))
	}
	list := "[" + strings.Join(items, ",\n  ") + "]"
	page := openapi.Parameter{Name: "limit", In: "query", Style: "form"}
	for _, tc := range []struct {
		name, kind, body string
		note             string
		check            func(r gjson.Result) bool
	}{
		{"array", "application/json", list, "showing 62 of 5000 items", func(r gjson.Result) bool { return r.Get("#").Int() == 62 && r.Get("61.id").Int() == 61 }},
		{"array within", "application/json", `{"total":5000,"data":` + list + `,"next":"x"}`, "data: showing", func(r gjson.Result) bool {
			return r.Get("total").Int() == 5000 && r.Get("next").Str == "x" && r.Get("data.#").Int() > 40
		}},
		{"two arrays", "application/json", `{"a":` + list + `,"b":` + list + `}`, "b: showing", func(r gjson.Result) bool {
			return r.Get("a.#").Int() > 20 && r.Get("b.#").Int() > 20
		}},
		{"one large item", "application/json", `[{"items":` + list + `}]`, "[0].items: showing", func(r gjson.Result) bool { return r.Get("0.items.#").Int() > 40 }},
		{"text within", "application/json", `{"id":1,"log":"` + strings.Repeat(`日\n`, 3000) + `"}`, "log: showing", func(r gjson.Result) bool {
			return r.Get("id").Int() == 1 && strings.HasSuffix(r.Get("log").Str, "…") && len(r.Get("log").Str) > 1000
		}},
		{"many members", "application/json", `{"a0":1` + strings.Repeat(`,"member":1`, 3000) + `}`, "of 3001 members", func(r gjson.Result) bool { return r.Get("a0").Int() == 1 }},
		{"only space", "application/json", "[1" + strings.Repeat(" ", 3000) + "]", "", func(r gjson.Result) bool { return r.Raw == "[1]" }},
		{"text", "text/plain", strings.Repeat("日", 3000), "The first 2048 of 9000 bytes are shown.", nil},
	} {
		srv := answering(t, 200, tc.kind, tc.body)
		s := newSource(t, Options{BaseURL: srv.URL, Limits: Limits{Answer: 2048}})
		got := call(t, s, &Call{Tool: tool("GET", "/x", &page), PickName: "_pick"})
		content := got.Get("content").Array()
		text := content[0].Get("text").Str
		if len(text) > 2048 || len(text) < 1500 && tc.note != "" && tc.name != "many members" {
			t.Errorf("%s: %d bytes", tc.name, len(text))
		}
		if (len(content) > 1) != (tc.note != "") || tc.note != "" && !contains(content[1].Get("text").Str, tc.note) {
			t.Errorf("%s: %s", tc.name, content[len(content)-1].Raw)
		}
		if tc.check == nil {
			continue
		}
		if tc.note != "" && !contains(content[1].Get("text").Str, "use limit, _pick to see the rest") {
			t.Errorf("%s: no advice: %s", tc.name, content[1].Raw)
		}
		if !gjson.Valid(text) || !tc.check(gjson.Parse(text)) {
			t.Errorf("%s: %s", tc.name, text)
		}
		if sc := got.Get("structuredContent"); strings.HasPrefix(text, "{") && sc.Raw != text {
			t.Errorf("%s: structured content is another: %s", tc.name, sc.Raw)
		}
	}
}

// The bytes read of an answer are bounded, compressed or not, ending or not.
func TestBounds(t *testing.T) {
	scaletest.Unraced(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write([]byte(`["`))
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range scaletest.Of(4, 64) {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	forever := func(part string) http.HandlerFunc {
		many := bytes.Repeat([]byte(part), 100)
		return func(w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				if _, err := w.Write(many); err != nil {
					return
				}
			}
		}
	}
	typed := func(kind string, then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", kind)
			then(w, q)
		}
	}
	item := `{"a":"` + strings.Repeat("x", 100) + `"},`
	for _, tc := range []struct {
		name string
		then http.HandlerFunc
		want string
		json bool
	}{
		{"a bomb", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, "larger than what is read", true},
		{"JSON without end", typed("application/json", func(w http.ResponseWriter, q *http.Request) {
			_, _ = w.Write([]byte(`{"data":[`))
			forever(item)(w, q)
		}), "larger than what is read", true},
		{"JSON without end that is no UTF-8", typed("application/json", func(w http.ResponseWriter, q *http.Request) {
			_, _ = w.Write([]byte(`{"a":"` + "\xff" + `","data":[`))
			forever(item)(w, q)
		}), "larger than what is read", false},
		{"text without end", typed("text/plain", forever("lorem ipsum ")), "larger than what is read", false},
		{"an image without end", typed("image/png", forever("lorem ipsum ")), "larger than 100000 bytes", false},
		{"events without end", typed("text/event-stream", forever("data: {\"a\":1}\n\n")), "larger than what is read", false},
		{"comments without end", typed("text/event-stream", forever(": ping\n\n")), "larger than what is read", false},
		{"an event without end", typed("text/event-stream", forever("data: x\n")), "larger than what is read", false},
		{"lines without end", typed("application/x-ndjson", forever("{\"a\":1}\n")), "larger than what is read", false},
		{"a line without end", typed("application/x-ndjson", forever("xxxxxxxx")), "larger than what is read", false},
		{"an error without end", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(400)
			forever("no ")(w, q)
		}, "400 Bad Request", false},
	} {
		srv := newRecorder(t, tc.then)
		s := newSource(t, Options{BaseURL: srv.URL, Limits: Limits{Body: 100000, Answer: 2000}})
		got := call(t, s, &Call{Tool: tool("GET", "/x")})
		if !contains(said(got), tc.want) {
			t.Errorf("%s: %.500s", tc.name, said(got))
		}
		if len(got.Raw) > 10000 || !utf8.ValidString(got.Raw) {
			t.Errorf("%s: a result of %d bytes", tc.name, len(got.Raw))
		}
		if tc.json && !gjson.Valid(got.Get("content.0.text").Str) {
			t.Errorf("%s: no JSON: %.300s", tc.name, got.Get("content.0.text").Str)
		}
	}
}

// A buffer does not outgrow what is read, whatever length is announced.
func TestReadAll(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), 3*announcedRoom/16)
	for _, size := range []int{0, 1, unknownRoom, announcedRoom, len(all)} {
		for _, announced := range []int{-1, 0, size / 2, size - 1, size, size + 1, 2 * size} {
			for _, most := range []int{1, max(size/2, 1), max(size, 1), size + 1, 4 * len(all)} {
				got, err := readAll(iotest.HalfReader(bytes.NewReader(all[:size])), make([]byte, 3, 700), announced, most)
				if want := all[:min(size, most)]; err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %d announced, at most %d: %d bytes, %v", size, announced, most, len(got), err)
				}
				if room := max(2*size, size+2, min(announced, announcedRoom)+1, unknownRoom); cap(got) > min(room, most) {
					t.Errorf("%d bytes, %d announced, at most %d: a buffer of %d bytes", size, announced, most, cap(got))
				}
			}
		}
	}
	broken := io.MultiReader(bytes.NewReader(all), iotest.ErrReader(io.ErrUnexpectedEOF))
	if got, err := readAll(broken, nil, len(all), 2*len(all)); err != io.ErrUnexpectedEOF {
		t.Errorf("an answer that breaks off: %d bytes, %v", len(got), err)
	}
}

// Answers that are read at the same time are read into buffers of their own, which are used again.
func TestBuffersOfAnswers(t *testing.T) {
	srv := newRecorder(t, nil)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		_, _ = w.Write([]byte("[" + strings.TrimSuffix(strings.Repeat(strconv.Itoa(n)+",", 100*n), ",") + "]"))
	})
	s := newSource(t, Options{BaseURL: srv.URL})
	var all sync.WaitGroup
	for n := 1; n <= 20; n++ {
		all.Go(func() {
			for range 5 {
				got, err := s.Call(t.Context(), &Call{Tool: benchTool(), Args: fmt.Appendf(nil, `{"c":"x","limit":%d}`, n)})
				text := gjson.GetBytes(got, "content.0.text").Str
				if err != nil || IsError(got) || len(gjson.Parse(text).Array()) != 100*n || strings.Trim(text, "[],"+strconv.Itoa(n)) != "" {
					t.Errorf("%d: %.100s, %v", n, got, err)
				}
			}
		})
	}
	all.Wait()
}

func TestIsError(t *testing.T) {
	for result, want := range map[string]bool{
		string(errorResult([]byte("x"))):                                   true,
		`{"content":[],"structuredContent":{"content":[],"isError":true}}`: false,
		`{"content":[]}`: false,
	} {
		if IsError([]byte(result)) != want {
			t.Errorf("IsError(%s) is %t", result, !want)
		}
	}
}

func TestGzip(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"a":1}`))
	_ = z.Close()
	for _, tc := range []struct{ name, encoding, body, want string }{
		{"gzip", "gzip", zipped.String(), `{"a":1}`},
		{"nothing, gzipped", "gzip", "", "200 OK"},
		{"broken", "gzip", "nonsense", "cannot be read: its answer is gzip that is cut"},
		{"unasked", "br", "x", "cannot be read: its answer has the Content-Encoding br"},
	} {
		srv := answering(t, 200, "application/json", tc.body, "Content-Encoding", tc.encoding)
		s := newSource(t, Options{BaseURL: srv.URL, Attempts: 1})
		if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); !contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if r := srv.requests()[0]; r.header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("%s: Accept-Encoding %q", tc.name, r.header.Get("Accept-Encoding"))
		}
	}
}

func TestStreams(t *testing.T) {
	for _, tc := range []struct {
		name, kind, body, pick string
		parts                  []string
		want                   string
	}{
		{"events", "text/event-stream", ": hi\n\nevent: x\ndata: {\"a\":1}\n\ndata: two\ndata: lines\n\ndata: [DONE]\n\ndata: late\n\n", "", []string{`{"a":1}`, "two\nlines"}, "{\"a\":1}\ntwo\nlines"},
		{"events, picked", "text/event-stream; charset=utf-8", "data: {\"a\":\"x\"}\n\ndata: {\"a\":\"y\"}\n\n", "#.a", []string{`{"a":"x"}`, `{"a":"y"}`}, `["x","y"]`},
		{"lines", "application/x-ndjson", "{\"a\":1}\r\n\n{\"a\":2}", "", []string{`{"a":1}`, `{"a":2}`}, "{\"a\":1}\n{\"a\":2}"},
		{"lines, picked", "application/jsonl", "{\"a\":1}\nnonsense\n{\"a\":2}\n", "#.a", []string{`{"a":1}`, "nonsense", `{"a":2}`}, "[1,2]"},
		{"none", "text/event-stream", "", "", nil, "200 OK"},
	} {
		srv := answering(t, 200, tc.kind, tc.body)
		s := newSource(t, Options{BaseURL: srv.URL})
		var parts []string
		got := call(t, s, &Call{Tool: tool("GET", "/x"), Pick: tc.pick, Progress: func(n int, text string) {
			if parts = append(parts, text); n != len(parts) {
				t.Errorf("%s: part %d is the %dth", tc.name, n, len(parts))
			}
		}})
		if said(got) != tc.want || strings.Join(parts, "|") != strings.Join(tc.parts, "|") {
			t.Errorf("%s: %q with progress %q, want %q with %q", tc.name, said(got), parts, tc.want, tc.parts)
		}
	}
}

// Parts are progress when they arrive. A stream that breaks off, or does not end in time, still has
// a result.
func TestStreamLive(t *testing.T) {
	for path, want := range map[string]string{"/late": "The answer had not ended in time", "/off": "The answer broke off"} {
		synctest.Test(t, func(t *testing.T) {
			told := make(chan bool, 1)
			s := newSourceOf(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write([]byte("data: one\n\n"))
				_ = http.NewResponseController(w).Flush()
				<-told
				_, _ = w.Write([]byte("data: two\n\n"))
				_ = http.NewResponseController(w).Flush()
				if r.URL.Path == "/off" {
					panic(http.ErrAbortHandler)
				}
				<-r.Context().Done()
			})
			got := call(t, s, &Call{Tool: tool("GET", path), Progress: func(n int, _ string) {
				if n == 1 {
					told <- true
				}
			}})
			if got.Get("content.0.text").Str != "one\ntwo" || !contains(got.Get("content.1.text").Str, want) || got.Get("isError").Bool() {
				t.Errorf("%s: %s", path, got.Raw)
			}
		})
	}
}

// Our credentials are masked in everything that a server returns.
func TestMask(t *testing.T) {
	const secret = `s3cret/"key\"+<value>&`
	plain := string(rawjson.AppendString(nil, secret))
	html, _ := json.Marshal(secret)
	for _, tc := range []struct {
		name   string
		status int
		kind   string
	}{
		{"JSON", 200, "application/json"}, {"text", 200, "text/plain"}, {"error", 400, "application/json"}, {"page", 400, "text/html"},
		{"events", 200, "text/event-stream"}, {"lines", 200, "application/x-ndjson"},
	} {
		body := `{"message":"key is ` + param.Escape(secret, param.Unreserved) + `","plain":` + plain + `,"slashes":` + strings.ReplaceAll(plain, "/", `\/`) + `,"html":` + string(html) + `}`
		if tc.kind == "text/event-stream" {
			body = "data: " + body + "\n\n"
		}
		srv := answering(t, tc.status, tc.kind, body)
		s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Key: secret, Query: "key"}})
		got := call(t, s, &Call{Tool: tool("GET", "/x"), Progress: func(_ int, text string) {
			if contains(text, "s3cret") {
				t.Errorf("%s: progress has the secret: %s", tc.name, text)
			}
		}})
		if contains(got.Raw, secret) || contains(got.Raw, "s3cret") || !contains(got.Raw, masked) {
			t.Errorf("%s: %s", tc.name, got.Raw)
		}
	}
}

func TestGrowth(t *testing.T) {
	for path, want := range map[string]int{"a.b": 1, "{a,b}": 2, "#.{a,b,c}": 3, "[@this,@this]|[@this,@this]": 4, "[[a,b],[a,b]]": 8, "[a,b": 2} {
		if got := growth(path); got != want {
			t.Errorf("growth(%q) = %d, want %d", path, got, want)
		}
	}
	path := strings.Repeat("[@this,@this]|", 60) + "0"
	if _, note := pick([]byte(`[1]`), path); !contains(note, "too much") {
		t.Errorf("a path that doubles 60 times: %q", note)
	}
}
