package imports

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table holds the servers of a file by name, and the meaning of keys in that file.
type table struct {
	servers object
	tokens  []string      // let clients in if a server names none
	timeout time.Duration // unit of the key timeout; 0 if unknown
}

// ofGemini reports whether a file belongs to Gemini's command line or a fork of it, by its
// folder or by keys that only they have.
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

var (
	dollars = regexp.MustCompile(`\$+[A-Z_][A-Z0-9_]*\b`)
	dollar  = regexp.MustCompile(`^(Bearer )?\$([A-Za-z_]\w*)$`)
)

// braced replaces $NAME by ${NAME} in all strings of a value: where it is the whole string,
// or NAME is in capitals. Gemini expands others only if the variable exists.
func braced(v any) any {
	switch v := v.(type) {
	case string:
		if m := dollar.FindStringSubmatch(v); m != nil {
			return m[1] + "${" + m[2] + "}"
		}
		return dollars.ReplaceAllStringFunc(v, func(ref string) string {
			if strings.HasPrefix(ref, "$$") {
				return ref
			}
			return "${" + ref[1:] + "}"
		})
	case []any:
		all := slices.Clone(v)
		for i := range all {
			all[i] = braced(all[i])
		}
		return all
	case object:
		all := maps.Clone(v)
		for key := range all {
			all[key] = braced(all[key])
		}
		return all
	}
	return v
}

// longest is the longest imported timeout: a year.
const longest = 365 * 24 * time.Hour

// wait reads a duration in that unit; ok is false for any other value.
func wait(v any, unit time.Duration) (d time.Duration, ok bool) {
	n, err := strconv.ParseFloat(text(v), 64)
	if err != nil || !(n > 0 && n <= float64(longest/unit)) {
		return 0, false
	}
	d = time.Duration(n * float64(unit)).Round(time.Millisecond)
	return d, d > 0
}

// seconds writes a time as the bridge reads it.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
