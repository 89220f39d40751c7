package era_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
)

// Row by row the pure rows of D7; "" means that nothing changes..
func TestError(t *testing.T) {
	const read, call = "resources/read", "tools/call"
	const urls = `{"code":-32042,"message":"go","data":{"elicitations":[{"url":"https://a","elicitationId":"1"},{"url":5},{"url":"https://b"}]}}`
	for _, tc := range []struct{ name, method, in, from, to, want string }{
		{"not found", read, `{"code":-32002,"message":"gone","data":{"uri":"x:","n":1.0}}`, v4, v5, `{"code":-32602,"message":"gone","data":{"uri":"x:","n":1.0}}`},
		{"not found, uri added", read, `{"code":-32002,"message":"gone"}`, v1, v5, `{"code":-32602,"message":"gone","data":{"uri":"u:\""}}`},
		{"not found, uri added to data", read, `{"message":"gone","data":{"n":1},"code":-32002}`, v4, v5, `{"message":"gone","data":{"n":1,"uri":"u:\""},"code":-32602}`},
		{"not found, data that is no object", read, `{"code":-32002,"message":"gone","data":"d"}`, v4, v5, `{"code":-32602,"message":"gone","data":{"uri":"u:\"","originalData":"d"}}`},
		{"not found, from a server that must not", read, `{"code":-32002,"message":"gone"}`, v5, v5, `{"code":-32602,"message":"gone","data":{"uri":"u:\""}}`},
		{"not found, written otherwise", read, `{"code":-3.2002e4,"message":"gone","data":{"uri":"x:"}}`, v4, v5, `{"code":-32602,"message":"gone","data":{"uri":"x:"}}`},
		{"not found elsewhere", call, `{"code":-32002,"message":"m","data":[1.0]}`, v4, v5, `{"code":-32603,"message":"m","data":{"originalCode":-32002,"originalData":[1.0]}}`},
		{"not found among legacy", read, `{"code":-32002,"message":"gone"}`, v1, v4, ""},
		{"URL needed where nothing can be asked", "tools/list", urls, v4, v5, strings.Replace(urls, "-32042", "-32603", 1)},
		{"URL needed among 2025-11-25", call, urls, v4, v4, ""},
		{"URL needed by an older client", call, urls, v4, v3, `{"code":-32603,"message":"go: https://a https://b","data":{"elicitations":[{"url":"https://a","elicitationId":"1"},{"url":5},{"url":"https://b"}]}}`},
		{"URL needed, none said", call, `{"code":-32042,"message":"go"}`, v4, v1, `{"code":-32603,"message":"go"}`},
		{"a code that meant nothing then", call, urls, v3, v3, ""},
		{"reserved since", call, `{"code":-32020,"message":"m"}`, v4, v5, `{"code":-32603,"message":"m","data":{"originalCode":-32020}}`},
		{"reserved since", call, `{"code":-32099,"message":"m","data":null}`, v4, v5, `{"code":-32603,"message":"m","data":{"originalCode":-32099,"originalData":null}}`},
		{"reserved since, to legacy", call, `{"code":-32050,"message":"m"}`, v4, v3, ""},
		{"of no meaning", call, `{"code":-32019,"message":"m"}`, v4, v5, ""},
		{"of no meaning", call, `{"code":-32000,"message":"m","data":1e400}`, v1, v5, ""},
		{"an application's", call, `{"code":-32100,"message":"m"}`, v4, v5, ""},
		{"an application's", call, `{"code":7,"message":"m"}`, v5, v4, ""},
		{"refused by a person", sample, `{"code":-1,"message":"no"}`, v4, v5, ""},
		{"invalid params", read, `{"code":-32602,"message":"m"}`, v5, v4, ""},
		{"invalid params with a uri", read, `{"code":-32602,"message":"m","data":{"uri":"u:"}}`, v5, v1, `{"code":-32002,"message":"m","data":{"uri":"u:"}}`},
		{"invalid params with a uri elsewhere", call, `{"code":-32602,"message":"m","data":{"uri":"u:"}}`, v5, v4, ""},
		{"invalid params with a uri among modern", read, `{"code":-32602,"message":"m","data":{"uri":"u:"}}`, v5, v5, ""},
		{"headers", call, `{"code":-32020,"message":"m"}`, v5, v4, `{"code":-32603,"message":"m","data":{"originalCode":-32020}}`},
		{"headers, to a client whose were right", call, `{"code":-32020,"message":"m"}`, v5, v5, `{"code":-32603,"message":"m","data":{"originalCode":-32020}}`},
		{"capability", call, `{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}`, v5, v4, ""},
		{"capability", call, `{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}`, v5, v5, ""},
		{"version", call, `{"code":-32022,"message":"m","data":{"supported":[]}}`, v5, v4, `{"code":-32603,"message":"m","data":{"originalCode":-32022,"originalData":{"supported":[]}}}`},
		{"version among modern", call, `{"code":-32022,"message":"m","data":{"supported":[]}}`, v5, v5, ""},
		{"method", call, `{"code":-32601,"message":"m"}`, v5, v4, ""},
		{"code that is none", call, `{"code":"-32002","message":"m"}`, v4, v5, ""},
		{"error that is none", read, `-32002`, v4, v5, ""},
		{"error that is none", read, ``, v4, v5, ""},
	} {
		becomes(t, tc.name, tc.in, tc.want, func(in []byte) []byte { return era.Error(tc.method, `u:"`, in, tc.from, tc.to) })
	}
}

// Errors for modern clients have no code that the bridge must not emit (B15).
func TestErrorCodes(t *testing.T) {
	for code := -32110; code <= -31990; code++ {
		for _, method := range []string{"resources/read", "tools/call", "tools/list"} {
			in := fmt.Sprintf(`{"code":%d,"message":"m"}`, code)
			out := string(era.Error(method, "u:", []byte(in), v5, v5))
			if may := code < -32099 || code > -32020 && code != -32002 || code == -32021 || code == -32022; (out == in) != may {
				t.Errorf("%s %s of a modern server became %s", method, in, out)
			}
			out = string(era.Error(method, "u:", []byte(in), v4, v5))
			kept := out == in
			if may := code < -32099 || code > -32020 && code != -32002; kept != may {
				t.Errorf("%s %s became %s", method, in, out)
			}
			if again := string(era.Error(method, "u:", []byte(out), v4, v5)); again != out {
				t.Errorf("%s became %s and then %s", in, out, again)
			}
		}
	}
}

// Many URLs do not make the message long; data has them all.
func TestErrorURLs(t *testing.T) {
	var all []string
	for i := range 50 {
		all = append(all, fmt.Sprintf(`{"url":"https://example.com/%02d%s"}`, i, strings.Repeat("x", i*100)))
	}
	in := `{"code":-32042,"message":"m","data":{"elicitations":[` + strings.Join(all, ",") + `]}}`
	out := string(era.Error("tools/call", "", []byte(in), v4, v3))
	if !strings.Contains(out, `"message":"m: https://example.com/00 https://example.com/01x`) || len(out) > len(in)+20_000 || !strings.Contains(out, all[49]) {
		t.Errorf("%.300s… of %d bytes, from %d", out, len(out), len(in))
	}
}
