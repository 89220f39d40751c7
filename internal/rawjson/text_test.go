package rawjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

func TestAppendString(t *testing.T) {
	for s, want := range map[string]string{"a": `a`, "\x00\x1f\x7f": "\\u0000\\u001f\x7f", "\xff\xfe": "\ufffd\ufffd", "é\u2028": "é\u2028", "<&>": `<&>`, "\"\\\n\r\t": `\"\\\n\r\t`} {
		for i := range 10 { // at every place within eight bytes
			x := strings.Repeat("x", i)
			text, want := x+s+s+"yyyyyyyy"+s, `before"`+x+want+want+"yyyyyyyy"+want+`"`
			if got := string(rawjson.AppendText([]byte("before"), []byte(text))); got != want {
				t.Errorf("AppendText(%q) = %s, want %s", text, got, want)
			}
			if got := string(rawjson.AppendString([]byte("before"), text)); got != want || !json.Valid([]byte(got[len("before"):])) {
				t.Errorf("AppendString(%q) = %s, want %s", text, got, want)
			}
		}
	}
	if got := string(rawjson.AppendString(nil, "")); got != `""` {
		t.Errorf("nothing is %s", got)
	}
}
