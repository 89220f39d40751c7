package jsonrpc

import (
	"fmt"
	"strings"
	"testing"
)

// A client's request that a server may confuse with another method is rejected, with its id.
func TestDoubtfulMethods(t *testing.T) {
	for method, want := range map[string]string{
		`tools/call`: "", `x/Tools/Call`: "", `TOOLS/LISTS`: "", `caf\u00e9/x`: "",
		`tools/call\u0000`: "control characters", `tools\n/call`: "control characters", `tools/call\u0085`: "control characters",
		`Tools/Call`: "must be tools/call", `resources/READ`: "must be resources/read", `prompts/\u0047et`: "must be prompts/get",
	} {
		_, err := ParseUTF8(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"%s"}`, method))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseUTF8 with the method %s = %v, want %q", method, err, want)
		}
		if invalid, ok := err.(*InvalidError); want != "" && (!ok || string(invalid.ID) != "7") {
			t.Errorf("%s: the error %v has not the id", method, err)
		}
	}
}
