package jsonrpc

import "testing"

// Bare removes what stands around a message, and changes nothing in the message.
func TestBare(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"{}", "{}"},
		{" \t\r\n{}\r\n", "{}"},
		{"\ufeff{}", "{}"},
		{"\ufeff \ufeff[{}]\ufeff", "[{}]"},
		{"\x00{}\x00", "{}"},
		{"\x1b[1;31m{}\x1b[0m\n", "{}"},
		{"\x1b[?25l\x1b]0;a {title}\x07\x1b]8;;x\x1b\\\x1b(B{}", "{}"},
		{"[{}]\x1b[0m", "[{}]"},
		{"[{} ]\n\x00", "[{} ]"},
		{"\x1b", ""},
		{"\ufeff\r", ""},
		{"", ""},
		{"ready {}", "ready {}"},
		{"{} done", "{} done"},
		{"{}\x1b[0m done", "{}\x1b[0m done"},
		{"\x1b[31mred\x1b[0m", "red\x1b[0m"},
		{"\u00a0{}", "\u00a0{}"},
	} {
		if got := string(Bare([]byte(tc.in))); got != tc.want {
			t.Errorf("Bare(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

// Positions in an error are those of the whole text, so that what is behind a message is found.
func TestParseBareOffset(t *testing.T) {
	const m = `{"jsonrpc":"2.0","method":"m"}`
	_, err := Parse([]byte("\ufeff" + m + m + "\x00"))
	if syntax, ok := err.(*SyntaxError); !ok || !syntax.Behind() || syntax.Offset != len("\ufeff"+m) {
		t.Errorf("Parse = %v, want text behind the message at byte %d", err, len("\ufeff"+m))
	}
	parts, err := Split([]byte("\ufeff[" + m + "," + m + "]\x00"))
	if err != nil || len(parts) != 2 || string(parts[1]) != m || !IsBatch([]byte("\x1b[0m[]")) || IsBatch([]byte("\x1b[0m{}")) {
		t.Errorf("Split = %q, %v", parts, err)
	}
}

// The forms of our ids, and what is none of them.
func TestInteger(t *testing.T) {
	for in, want := range map[string]string{
		"7": "7", `"7"`: "7", "7.0": "7", `"7.0"`: "7", "7e0": "7", "70e-1": "7", "1e2": "100", "0": "0", `"0"`: "0", "0.0": "0",
		"9007199254740993": "9007199254740993", `"9223372036854775807"`: "9223372036854775807",
		"7.5": "7.5", `"07"`: `"07"`, `"x"`: `"x"`, `""`: `""`, "-7": "-7", `"0x7"`: `"0x7"`, `"7_0"`: `"7_0"`, `"1e400"`: `"1e400"`, "1e30": "1e30",
		`"7 "`: `"7 "`, "null": "null", "": "",
	} {
		if got := string(Integer([]byte(in))); got != want {
			t.Errorf("Integer(%s) = %s, want %s", in, got, want)
		}
	}
}
