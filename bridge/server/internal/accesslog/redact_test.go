package accesslog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func TestRedact(t *testing.T) {
	for _, test := range []struct {
		name, in, want string
		most           int
		cut            bool
	}{
		{"nothing secret", `{"a":[1,2.50,true,null,"x"], "b":{}}`, `{"a":[1,2.50,true,null,"x"],"b":{}}`, 100, false},
		{"numbers keep their digits", `[12345678901234567890,1e400]`, `[12345678901234567890,1e400]`, 100, false},
		{"names", `{"Authorization":"a","X-API-Key":"a","apiKey":["a"],"access_token":{"a":["a"]},"PASSWORD":1,"Set-Cookie":"a","sessionId":"a","requestState":"a","taskId":"a","auth":"a","b":1}`,
			`{"Authorization":"[redacted]","X-API-Key":"[redacted]","apiKey":"[redacted]","access_token":"[redacted]","PASSWORD":"[redacted]","Set-Cookie":"[redacted]","sessionId":"[redacted]","requestState":"[redacted]","taskId":"[redacted]","auth":"[redacted]","b":1}`, 1000, false},
		{"escaped name", `{"p\u0061ssword":"a"}`, `{"password":"[redacted]"}`, 100, false},
		{"depth", `[{"a":[{"b":{"secret":"x"}}]}]`, `[{"a":[{"b":{"secret":"[redacted]"}}]}]`, 100, false},
		{"JSON in a text", `{"text":" {\"token\":\"x\",\"n\":1}"}`, `{"text":"{\"token\":\"[redacted]\",\"n\":1}"}`, 100, false},
		{"lines of JSON in a text", `{"text":"{\"token\":\"x\"}\n{\"token\":\"y\"}"}`, `{"text":"{\"token\":\"[redacted]\"}\n{\"token\":\"[redacted]\"}"}`, 100, false},
		{"text", `["see https://h/p?a=1&access_token=abc&b=2","Authorization: Bearer abc","sent Basic dXNlcjpwYXNz","a basic idea"]`,
			`["see https://h/p?a=1\u0026access_token=[redacted]\u0026b=2","Authorization: [redacted]","sent Basic [redacted]","a basic idea"]`, 200, false},
		{"quotes in a text", `["got {\"password\": \"a b,c\\\"d\", \"n\":1}","password: 'a b,c'","\"token\"=>\"a b\" x"]`,
			`["got {\"password\": \"[redacted]\", \"n\":1}","password: '[redacted]'","\"token\"=\u003e\"[redacted]\" x"]`, 200, false},
		{"quotes of a text in a text", `["x {\\\"password\\\": \\\"a b\\\", \\\"n\\\":1}","token=\\a"]`, `["x {\\\"password\\\": \\\"[redacted]","token=[redacted]"]`, 100, false},
		{"headers in a text", `["GET / HTTP/1.1\r\nCookie: a=1; b=2\r\nAuthorization: token abc\r\nHost: h"]`, `["GET / HTTP/1.1\r\nCookie: [redacted]\r\nAuthorization: [redacted]\r\nHost: h"]`, 200, false},
		{"JSON behind a text", `["got: {\"secret\":{\"a\":\"x\"}}, {\"b\":1}"]`, `["got: {\"secret\":[redacted]"]`, 100, false},
		{"a text in a text", `["\"{\\\"token\\\":\\\"x\\\"}\""]`, `["\"{\\\"token\\\":\\\"[redacted]\\\"}\""]`, 100, false},
		{"cut text", `{"a":"0123456789","b":1}`, `{"a":"01234…"}`, 10, true},
		{"cut in a rune", `"ÄÖÜ"`, `"Ä…"`, 3, true},
		{"cut array", `[1,[2,3,4],5]`, `[1,[2,3,null]]`, 8, true},
		{"no room", `{"a":1}`, `{}`, 0, true},
		{"cut JSON in a text", `["{\"secret\":\"x\",\"y\":\"` + strings.Repeat("z", 50) + `\"}"]`, ``, 40, true},
	} {
		got, whole := Redact([]byte(test.in), test.most)
		text := string(got)
		if test.want != "" && text != test.want || whole == test.cut || !json.Valid([]byte(text)) || strings.Contains(text, `"x\"`) {
			t.Errorf("%s: Redact(%s) = %s, %t; want %s", test.name, test.in, text, whole, test.want)
		}
	}
}

// What is written is JSON whatever comes, and what stands under the name of a
// secret does not survive, however deep it is and in how many texts.
func FuzzRedact(f *testing.F) {
	f.Add(`{"a":[1,{"b":"c"}]}`, "token", uint(3), uint16(100))
	f.Add(`"x"`, "API-Key", uint(0xfff), uint16(4096))
	f.Add(`[[[]]]`, "session_id", uint(0b0110_1011), uint16(7))
	f.Fuzz(func(t *testing.T, other, name string, shape uint, most uint16) {
		if !json.Valid([]byte(other)) || !sanitize.IsSecret(name) {
			return
		}
		const secret = "hunter2hunter2"
		if strings.Contains(other, "hunter") || strings.Contains(name, "hunter") {
			return
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		raw := fmt.Sprintf(`{"o":%s,%s:{"x":["%s"]}}`, other, quoted, secret)
		for ; shape > 0; shape >>= 2 {
			switch shape & 3 {
			case 0:
				raw = "[" + other + "," + raw + "]"
			case 1:
				raw = `{"k":` + raw + `,"o":` + other + `}`
			case 2:
				text, _ := json.Marshal(raw)
				raw = string(text)
			}
			if len(raw) > 1<<16 {
				return
			}
		}
		if !json.Valid([]byte(raw)) { // the name has what is no UTF-8
			return
		}
		got, _ := Redact([]byte(raw), int(most))
		if !json.Valid(got) {
			t.Fatalf("Redact(%s) = %s: not JSON", raw, got)
		}
		if strings.ContainsRune(string(got), '\n') {
			t.Errorf("Redact(%s) = %s: more than one line", raw, got)
		}
		if strings.Contains(string(got), "hunter") {
			t.Errorf("Redact(%s) = %s: the secret is there", raw, got)
		}
	})
}
