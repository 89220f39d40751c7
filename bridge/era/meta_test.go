package era

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	caps    = `"io.modelcontextprotocol/clientCapabilities":{}`
	info    = `"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}`
	level   = `"io.modelcontextprotocol/logLevel":"info"`
)

//
func TestReadMeta(t *testing.T) {
	for _, tc := range []struct{ name, in, version, wrong string }{
		{"least", `{` + version + `,` + caps + `}`, "2026-07-28", ""},
		{"all", `{"progressToken":1,` + version + `,` + caps + `,` + info + `,` + level + `}`, "2026-07-28", ""},
		{"escaped keys", `{"\u0069o.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol\/clientCapabilities":{}}`, "2026-07-28", ""},
		{"none", "", "", "params._meta is missing"},
		{"null", `null`, "", "params._meta must be an object"},
		{"array", `[]`, "", "params._meta must be an object"},
		{"no version", `{` + caps + `}`, "", "protocolVersion is missing"},
		{"version no string", `{"io.modelcontextprotocol/protocolVersion":20260728,` + caps + `}`, "", "protocolVersion must be a string"},
		{"version empty", `{"io.modelcontextprotocol/protocolVersion":"",` + caps + `}`, "", "protocolVersion must be a string"},
		{"no capabilities", `{` + version + `}`, "2026-07-28", "clientCapabilities is missing"},
		{"capabilities no object", `{` + version + `,"io.modelcontextprotocol/clientCapabilities":[]}`, "2026-07-28", "clientCapabilities must be an object"},
		{"capabilities null", `{` + version + `,"io.modelcontextprotocol/clientCapabilities":null}`, "2026-07-28", "clientCapabilities must be an object"},
		{"info no object", `{` + version + `,` + caps + `,"io.modelcontextprotocol/clientInfo":"c"}`, "2026-07-28", "clientInfo must be an object"},
		{"level unknown", `{` + version + `,` + caps + `,"io.modelcontextprotocol/logLevel":"loud"}`, "2026-07-28", "logLevel must be one of debug, info"},
		{"level no string", `{` + version + `,` + caps + `,"io.modelcontextprotocol/logLevel":1}`, "2026-07-28", "logLevel must be one of"},
		{"version twice", `{` + version + `,` + caps + `,"io.modelcontextprotocol/protocolVersion":"2027-01-01"}`, "", "protocolVersion appears twice"},
		{"capabilities twice, once escaped", `{` + version + `,` + caps + `,"io.modelcontextprotocol/clientCapabilitie\u0073":{"roots":{}}}`, "2026-07-28", "clientCapabilities appears twice"},
	} {
		var in []byte
		if tc.in != "" {
			in = []byte(tc.in)
		}
		m, wrong := ReadMeta(in)
		if m.Version != tc.version || (wrong == "") != (tc.wrong == "") || !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: ReadMeta(%s) = %q, %q, want %q, %q", tc.name, tc.in, m.Version, wrong, tc.version, tc.wrong)
		}
	}
	for _, l := range logLevels {
		if m, wrong := ReadMeta([]byte(`{` + version + `,` + caps + `,"io.modelcontextprotocol/logLevel":"` + l + `"}`)); m.LogLevel != l || wrong != "" {
			t.Errorf("level %s: %q, %q", l, m.LogLevel, wrong)
		}
	}
}

// what is read is written, on one line and with its bytes.
func TestMembers(t *testing.T) {
	in := "{" + info + ", \"x\":1,\n" + level + `,"io.modelcontextprotocol/clientCapabilities":{"a":` + "\r\n" + `12345678901234567890},` + version + "}"
	m, wrong := ReadMeta([]byte(in))
	if wrong != "" {
		t.Fatal(wrong)
	}
	want := version + `,"io.modelcontextprotocol/clientCapabilities":{"a":  12345678901234567890},` + info + `,` + level
	if got := string(m.Members()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Count(in, "\n") != 2 {
		t.Error("Members changed what it was read from")
	}
	if got := (Meta{}).Members(); len(got) != 0 {
		t.Errorf("Members of nothing = %s", got)
	}
}

// edited checks what f makes of a payload, which stays as it is. "" means that f returns the same memory.
func edited(t *testing.T, name, in, want string, f func(in []byte) []byte) {
	t.Helper()
	payload := []byte(in)
	if got := f(payload); want != "" && string(got) != want || want == "" && (string(got) != in || len(in) > 0 && &got[0] != &payload[0]) {
		t.Errorf("%s: %s became\n     %s\nwant %s", name, in, got, want)
	}
	if string(payload) != in {
		t.Errorf("%s: the input has become %s", name, payload)
	}
}

//
func TestInject(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"no params", ``, `{"_meta":{"NEW":1}}`},
		{"null", `null`, `{"_meta":{"NEW":1}}`},
		{"empty", `{}`, `{"_meta":{"NEW":1}}`},
		{"no _meta", `{"name":"x", "arguments":{"a":1.50}}`, `{"name":"x", "arguments":{"a":1.50},"_meta":{"NEW":1}}`},
		{"empty _meta", `{"_meta":{},"a":1}`, `{"_meta":{"NEW":1},"a":1}`},
		{"others stay", `{"_meta":{"progressToken": "t", "v/k":[1]},"a":1}`, `{"_meta":{"progressToken": "t", "v/k":[1],"NEW":1},"a":1}`},
		{"reserved ones go", `{"_meta":{` + version + `,"a":1,` + caps + `,` + info + `,"b":2,` + level + `}}`, `{"_meta":{"a":1,"b":2,"NEW":1}}`},
		{"only reserved ones", `{"_meta":{` + version + `,` + caps + `}}`, `{"_meta":{"NEW":1}}`},
		{"reserved ones of answers stay", `{"_meta":{"` + KeyServerInfo + `":{},"` + KeySubscription + `":1}}`, `{"_meta":{"` + KeyServerInfo + `":{},"` + KeySubscription + `":1,"NEW":1}}`},
		{"twice and escaped", `{"_meta":{` + level + `,"\u0069o.modelcontextprotocol\/logLevel":"debug",` + level + `,"a":1}}`, `{"_meta":{"a":1,"NEW":1}}`},
		{"_meta twice and escaped", `{"\u005fmeta":{"a":1},"b":2,"_meta":{` + level + `},"_met\u0061":3}`, `{"\u005fmeta":{"a":1,"NEW":1},"b":2}`},
		{"_meta no object", `{"a":1,"_meta":[{` + version + `}]}`, `{"a":1,"_meta":{"NEW":1}}`},
		{"_meta null", `{"_meta":null,"a":1}`, `{"_meta":{"NEW":1},"a":1}`},
		{"a deeper _meta is payload", `{"arguments":{"_meta":{` + level + `}}}`, `{"arguments":{"_meta":{` + level + `}},"_meta":{"NEW":1}}`},
		{"no params of a request", `[{"a":1}]`, `[{"a":1}]`},
	} {
		edited(t, tc.name, tc.in, tc.want, func(in []byte) []byte { return Inject(in, []byte(`"NEW":1`)) })
	}
	edited(t, "without members", `{"_meta":{"a":1,`+level+`}}`, `{"_meta":{"a":1}}`, func(in []byte) []byte { return Inject(in, nil) })
}

func TestStrip(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"some", `{"n":1.0, "_meta":{"a":1, ` + version + `,` + caps + `,"b":2},"z":[]}`, `{"n":1.0, "_meta":{"a":1,"b":2},"z":[]}`},
		{"emptied", `{"a":1, "_meta":{` + version + `},"b":2}`, `{"a":1,"b":2}`},
		{"emptied first", `{ "_meta":{` + version + `}, "b":2}`, `{ "b":2}`},
		{"emptied alone", `{"_meta":{` + version + `}}`, `{}`},
		{"twice", `{"_meta":{"a":1},"_meta":{` + version + `}}`, `{"_meta":{"a":1}}`},
		{"escaped", `{"_meta":{"io.modelcontextprotocol/log\u004cevel":"info","a":1}}`, `{"_meta":{"a":1}}`},
	} {
		edited(t, tc.name, tc.in, tc.want, Strip)
	}
	for _, same := range []string{``, `null`, `{}`, `{"_meta":{}}`, `{"_meta":7}`, `{"_meta":{"progressToken":1}}`, `{"a":{"_meta":{` + version + `}}}`} {
		edited(t, "the same", same, "", Strip)
	}
}

func TestStripMRTR(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"name":"x","inputResponses":{"k":{}},"arguments":{"requestState":1},"requestState":"s"}`, `{"name":"x","arguments":{"requestState":1}}`},
		{`{"request\u0053tate":"s","requestState":"t","name":"x"}`, `{"name":"x"}`},
		{`{"inputResponses":{}}`, `{}`},
		{`{"name":"x","_meta":{"requestState":1}}`, ""},
	} {
		edited(t, "fields of a retry", tc.in, tc.want, StripMRTR)
	}
}

// field is a member of a JSON object, in the order of the text.
type field struct {
	name  string
	value json.RawMessage
}

// fields reads an object with encoding/json: the oracle for what is edited.
func fields(t *testing.T, b []byte) []field {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		t.Fatalf("%q is no object: %v, %v", b, first, err)
	}
	var all []field
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		f := field{name: name.(string)}
		if err := d.Decode(&f.value); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		all = append(all, f)
	}
	return all
}

func without(all []field, names ...string) []field {
	return slices.DeleteFunc(slices.Clone(all), func(f field) bool { return slices.Contains(names, f.name) })
}

func sameFields(a, b []field) bool {
	return slices.EqualFunc(a, b, func(f, y field) bool { return f.name == y.name && bytes.Equal(f.value, y.value) })
}

// FuzzInject checks that none of the client's reserved keys is left, and that the bridge's are there once. All
// else stays, in order and byte by byte.
func FuzzInject(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a":1 , "_meta" : { "x":[1,{"_meta":2}] , ` + version + ` } } `,
		`{"_meta":{` + version + `,"a":"\\\"",` + level + `},"_m\u0065ta":{` + info + `},"inputResponses":[],"z":1e5}`,
		`{"_meta":[],"requestState":"\u0000"}`, `{"_meta":{"io.modelcontextprotocol/client\u0049nfo":{}}}`, `[1,2`, `{"a":`, `"`, `{"`, `{"_meta":{"`,
	} {
		f.Add([]byte(s))
	}
	members := []byte(version + "," + caps)
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		injected, stripped, first := Inject(in, members), Strip(in), StripMRTR(in)
		ReadMeta(in)
		if !bytes.Equal(in, before) {
			t.Fatalf("%q became %q", before, in)
		}
		if trimmed := bytes.TrimSpace(in); !json.Valid(in) || trimmed[0] != '{' {
			return
		}
		was := fields(t, in)
		rest := without(was, "_meta")
		if got := fields(t, injected); !sameFields(without(got, "_meta"), rest) || len(got) != len(rest)+1 {
			t.Fatalf("Inject(%q) = %q", in, injected)
		}
		if got := fields(t, stripped); !sameFields(without(got, "_meta"), rest) || len(got) > len(rest)+1 {
			t.Fatalf("Strip(%q) = %q", in, stripped)
		}
		if got := fields(t, first); !sameFields(got, without(was, "inputResponses", "requestState")) {
			t.Fatalf("StripMRTR(%q) = %q", in, first)
		}
		meta := func(all []field) []field {
			for _, f := range all {
				if f.name == "_meta" && f.value[0] == '{' {
					return fields(t, f.value)
				} else if f.name == "_meta" {
					return nil
				}
			}
			return nil
		}
		own := without(meta(was), requestKeys...)
		if got := meta(fields(t, injected)); !sameFields(got, append(own, meta([]field{{"_meta", json.RawMessage("{" + string(members) + "}")}})...)) {
			t.Fatalf("Inject(%q) = %q", in, injected)
		}
		if got := meta(fields(t, stripped)); !sameFields(got, own) {
			t.Fatalf("Strip(%q) = %q", in, stripped)
		}
		if again := Strip(stripped); len(again) > 0 && &again[0] != &stripped[0] {
			t.Fatalf("Strip has still something to do in %q", stripped)
		}
		if _, wrong := ReadMeta(metaOf(t, injected)); wrong != "" {
			t.Fatalf("after Inject(%q): %s", in, wrong)
		}
	})
}

func metaOf(t *testing.T, params []byte) []byte {
	for _, f := range fields(t, params) {
		if f.name == "_meta" {
			return f.value
		}
	}
	t.Fatalf("no _meta in %q", params)
	return nil
}

func BenchmarkInject(b *testing.B) {
	members := []byte(version + "," + caps)
	text := strings.Repeat(`The quick brown fox; \"quoted\", back\\slash, a line\né 世界. `, 1<<20/70)
	for name, in := range map[string]string{
		"text":    `{"name":"echo","arguments":{"message":"` + text + `"},"_meta":{"progressToken":1}}`,
		"numbers": `{"name":"echo","arguments":{"all":[1` + strings.Repeat(",12345", 1<<20/6) + `]},"_meta":{"progressToken":1}}`,
	} {
		for what, f := range map[string]func([]byte) []byte{
			"inject": func(in []byte) []byte { return Inject(in, members) },
			"strip":  Strip,
		} {
			b.Run(fmt.Sprint(what, "/", name), func(b *testing.B) {
				raw := []byte(in)
				b.SetBytes(int64(len(in)))
				b.ReportAllocs()
				for b.Loop() {
					f(raw)
				}
			})
		}
	}
}
