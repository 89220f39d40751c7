package lift

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// FuzzLift checks that lifting only adds the bridge's members to a request. Lowering only removes the envelope
// of a modern result.
func FuzzLift(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1.0}`, `{ "_meta":{"progressToken":1,"x":[ ]} , "b":"\u00e4"}`, `{"_meta":{},"c":null}`, `{"content":[],"_meta":5}`, "{\n\"a\":\t1\n}"} {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(7))
	}
	who := newMetadata(&bridge.Caller{Revision: era.Rev20251125, Capabilities: []byte(`{"roots":{}}`), Params: []byte(`{"clientInfo":{"name":"c","version":"1"}}`)}, "info")
	f.Fuzz(func(t *testing.T, payload []byte, how uint8) {
		m, err := jsonrpc.Parse(append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":`), payload...), '}'))
		if err != nil || m.Params == nil {
			return
		}
		before := era.Strip(bytes.Clone(m.Params))
		raised := who.into(m)
		line := raised.Append(nil, []byte("2"), nil)
		again, err := jsonrpc.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if meta, fault := era.ReadMeta(again.Meta()); fault != "" || meta.LogLevel != "info" || string(meta.Capabilities) != `{"roots":{}}` {
			t.Fatalf("%s: %s", line, fault)
		}
		if got := era.Strip(again.Params); compact(got) != compact(before) && m.Meta() != nil && m.Meta()[0] == '{' {
			t.Fatalf("%s\nbecame %s\nand then %s", before, line, got)
		}

		// Back again: an answer with an envelope, at one place or another.
		envelope := `"resultType":"complete","ttlMs":0,"cacheScope":"private"`
		if bytes.Contains(payload, []byte(`\`)) || bytes.Contains(payload, []byte("resultType")) || bytes.Contains(payload, []byte("ttlMs")) ||
			bytes.Contains(payload, []byte("cacheScope")) || bytes.Contains(payload, []byte(era.Reserved)) {
			return // an envelope of its own
		}
		result := bytes.TrimRight(m.Params, " \t\r\n")
		at := bytes.IndexByte(result, '{') + 1
		switch {
		case rawjson.IsEmpty(result):
			result = []byte("{" + envelope + "}")
		case how%2 == 0:
			result = append(append(append(bytes.Clone(result[:at]), envelope+","...), result[at:]...), " "...)
		default:
			result = append(bytes.Clone(result[:len(result)-1]), ","+envelope+"}"...)
		}
		a, err := jsonrpc.Parse(append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":`), result...), '}'))
		if err != nil {
			t.Fatalf("%s: %v", result, err)
		}
		if era.ResultType(a) != era.ResultComplete {
			t.Fatalf("%s is of kind %s", result, era.ResultType(a))
		}
		a = bare(a)
		out, err := jsonrpc.Parse(a.Append(nil, []byte("1"), nil))
		if err != nil {
			t.Fatalf("%s: %v", result, err)
		}
		if compact(out.Result) != compact(m.Params) {
			t.Fatalf("%s\nbecame %s", result, out.Result)
		}
	})
}

// compact returns JSON without white space and without an empty _meta.
func compact(b []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return string(b)
	}
	s := bytes.ReplaceAll(out.Bytes(), []byte(`"_meta":{},`), nil)
	s = bytes.ReplaceAll(s, []byte(`,"_meta":{}`), nil)
	return string(bytes.ReplaceAll(s, []byte(`"_meta":{}`), nil))
}

// bare removes each member with one comma, at any position.
func TestBare(t *testing.T) {
	members := []string{`"resultType":"complete"`, `"a":1`, `"ttlMs":5`, `"cacheScope":"public"`, `"b":{"ttlMs":1}`, `"_meta":{"io.modelcontextprotocol/serverInfo":{}}`}
	var try func(left, chosen []string)
	n := 0
	try = func(left, chosen []string) {
		if len(chosen) > 0 {
			n++
			text, want := "{", "{"
			for i, m := range chosen {
				if i > 0 {
					text += " ,\t"
				}
				text += m
				if m == members[1] || m == members[4] {
					if want != "{" {
						want += ","
					}
					want += m
				}
			}
			a := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":`+text+` }}`)
			a = bare(a)
			if got := a.Whole(); compact(got) != want+"}" {
				t.Fatalf("bare(%s) = %s, want %s", text, got, want)
			}
		}
		for i := range left {
			rest := append(append([]string(nil), left[:i]...), left[i+1:]...)
			try(rest, append(append([]string(nil), chosen...), left[i]))
		}
	}
	try(members, nil)
	if n < 1000 {
		t.Fatalf("%d cases", n)
	}
}
