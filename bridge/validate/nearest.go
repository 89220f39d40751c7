package validate

import (
	"strings"
)

// maxNames is how many names are listed when none is near.
const maxNames = 30

// unknown says that there is no argument of a name, and which may be meant.
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

// Nearest returns the name that is most like name, or nothing when none is.
func Nearest(name string, names []string) string {
	if len(name) > 100 {
		return ""
	}
	best, least := "", len(name)/3+2
	bare := fold(name)
	for _, n := range names {
		if len(n) > 100 {
			continue
		}
		f := fold(n)
		d := distanceOf(bare, f)
		if len(bare) > 3 && len(f) > 3 && (strings.Contains(f, bare) || strings.Contains(bare, f)) {
			d = min(d, 2)
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}

// fold takes away what names are often mistaken in.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// distanceOf is Levenshtein's distance.
func distanceOf(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			corner, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, corner+cost)
		}
	}
	return row[len(b)]
}
