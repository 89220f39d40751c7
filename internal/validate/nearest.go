package validate

import (
	"strings"

	"github.com/mcp-bridge/bridge/internal/similar"
)

// maxNames bounds the names that a message lists if no name is similar.
const maxNames = 30

// unknown returns the fault that no argument has a name, with the name that was probably meant.
func unknown(name string, names []string) string {
	if near := Nearest(name, names); near != "" {
		return "there is no such argument; did you mean " + near + "?"
	}
	switch {
	case len(names) == 0:
		return "there is no such argument: there are none"
	case len(names) > maxNames:
		return "there is no such argument"
	}
	return "there is no such argument; there are " + strings.Join(names, ", ")
}

// Nearest returns the name that is most similar to name, or "".
func Nearest(name string, names []string) string {
	if len(name) > 100 {
		return ""
	}
	best, least := "", len(name)/3+2
	bare := similar.Fold(name)
	for _, n := range names {
		if len(n) > 100 {
			continue
		}
		f := similar.Fold(n)
		d := similar.Distance(bare, f)
		if len(bare) > 3 && len(f) > 3 && (strings.Contains(f, bare) || strings.Contains(bare, f)) {
			d = min(d, 2)
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}
