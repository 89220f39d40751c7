package approve

import "testing"

// The person sees each character of the arguments, also those that have no picture.
func TestVisible(t *testing.T) {
	for given, want := range map[string]string{
		`{"a":"Größe 日本 🙂"}`:           `{"a":"Größe 日本 🙂"}`,
		"{\"a\":\"x\u200by\u202ez\"}":  `{"a":"x\u200by\u202ez"}`,
		"{\"a\":\"\U000e0041\u3164\"}": `{"a":"\udb40\udc41\u3164"}`, // a tag, and a filler
		"{\"a\":\"\u2028\ufe0f\"}":     `{"a":"\u2028\ufe0f"}`,
	} {
		if got := visible(given); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}
