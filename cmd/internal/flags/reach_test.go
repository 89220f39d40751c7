package flags_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// A key that stands in place of the name of its variable is not shown.
func TestUnset(t *testing.T) {
	for _, key := range []string{"d0ce3b7737dc404de4570fb4b13b042146facd6f", "sk-live-abc", "hunter2-horse-battery", "MyS3cretPassw0rdIsHereNow", "9f8a7c6d5e4f3a2b1c0d9e8f7a6b5c4d", "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"} {
		if text := flags.Unset(key).Error(); strings.Contains(text, key) {
			t.Errorf("%s", text)
		}
	}
	if text := flags.Unset("TEAM_KEY").Error(); !strings.Contains(text, "TEAM_KEY") {
		t.Errorf("%s", text)
	}
}
