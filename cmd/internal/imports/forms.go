package imports

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// table holds the servers of a file by name, and the meaning of keys in that file.
type table struct {
	servers object
	tokens  []string      // tokens that admit clients if a server names no token
	timeout time.Duration // unit of the key timeout; 0 if the unit is unknown
	goose   bool
	spell   func(string) string // converts the program's placeholders to the form ${…}; may be nil
}

// ofGemini reports whether a file belongs to Gemini's command line or a fork of it, by the file's folder or by keys
// that only these programs have.
func ofGemini(from string, root object) bool {
	if slices.Contains([]string{".gemini", ".qwen"}, filepath.Base(filepath.Dir(from))) {
		return true
	}
	mcp := orEmpty(root["mcp"])
	for _, key := range []any{root["selectedAuthType"], root["allowMCPServers"], root["excludeMCPServers"], mcp["allowed"], mcp["excluded"]} {
		if key != nil {
			return true
		}
	}
	for _, v := range orEmpty(root["mcpServers"]) {
		if o := orEmpty(v); o["httpUrl"] != nil || o["trust"] != nil {
			return true
		}
	}
	return false
}

// ofCrush reports whether the servers under the key mcp belong to Crush. opencode has other types.
func ofCrush(servers object) bool {
	for _, v := range servers {
		if slices.Contains([]string{"stdio", "http", "sse"}, text(orEmpty(v)["type"])) {
			return true
		}
	}
	return false
}

// longest is the maximum imported timeout: a year.
const longest = 365 * 24 * time.Hour

// wait reads a duration in a unit. For any other value, ok is false.
func wait(v any, unit time.Duration) (d time.Duration, ok bool) {
	n, err := strconv.ParseFloat(text(v), 64)
	if err != nil || !(n > 0 && n <= float64(longest/unit)) {
		return 0, false
	}
	d = time.Duration(n * float64(unit)).Round(time.Millisecond)
	return d, d > 0
}

// seconds formats a duration for the bridge.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
