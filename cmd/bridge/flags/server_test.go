package flags_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
	"github.com/mcp-bridge/bridge/config"
)

func TestParseHeaders(t *testing.T) {
	t.Setenv("FLAGS_A", "one")
	t.Setenv("FLAGS_EMPTY", "")
	headers := func(all ...string) (map[string]string, error) {
		s, err := (&flags.Remote{Headers: all}).Server("https://example.com/mcp", config.ShareSession)
		if err != nil {
			return nil, err
		}
		return s.HTTP.Headers, nil
	}
	for _, test := range []struct {
		flag, want, fault string
	}{
		{flag: "x: plain", want: "plain"},
		{flag: "x:", want: ""},
		{flag: "x: ${FLAGS_A}-${FLAGS_A}", want: "one-one"},
		{flag: "x: ${FLAGS_B:-two}${FLAGS_EMPTY:-three}${FLAGS_EMPTY}", want: "twothree"},
		{flag: "x: $${FLAGS_A} $FLAGS_A", want: "${FLAGS_A} $FLAGS_A"},
		{flag: "x: ${FLAGS_B}", fault: "the variable FLAGS_B is not set"},
		{flag: "x: secret ${FLAGS_A", fault: "has no closing brace"},
		{flag: "secret", fault: "needs 'NAME: VALUE'"},
		{flag: ": secret", fault: "needs 'NAME: VALUE'"},
	} {
		got, err := headers(test.flag)
		switch {
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: error %v, want one with %q and no value", test.flag, err, test.fault)
		case test.fault == "" && (err != nil || got["X"] != test.want):
			t.Errorf("%q: %q (error %v), want %q", test.flag, got["X"], err, test.want)
		}
	}
	if _, err := headers("a: 1", "A: 2"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a header twice: error %v", err)
	}
}

func TestServerName(t *testing.T) {
	for _, test := range []struct{ command, want string }{
		{"npx", "npx"},
		{"/usr/local/bin/My_Server", "my-server"},
		{`C:\Tools\server.EXE`, "server"},
		{"./mcp", "server"},
		{"...", "server"},
		{strings.Repeat("a", 100), strings.Repeat("a", 64)},
	} {
		s, err := (&flags.Program{}).Server([]string{test.command, "-x"}, config.ShareAll)
		if err != nil || s.Name != test.want {
			t.Errorf("the server of %q is named %q (error %v), want %q", test.command, s.Name, err, test.want)
		}
	}
}
