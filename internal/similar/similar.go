// Package similar finds the existing names that resemble an unknown name. Its work is bounded: it compares only the
// first bytes of each name.
package similar

import (
	"slices"
	"strings"
)

// maxCompared bounds the compared bytes of a name, because strangers send names.
const maxCompared = 100

// maxListed bounds the names that a hint lists.
const maxListed = 20

// Fold removes common differences of spelling: getUser, get-user and get_user become equal.
func Fold(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
}

// Distance returns the number of edits from a to b. An edit inserts, deletes or replaces a byte, or swaps two
// neighbouring bytes (optimal string alignment).
func Distance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// Names returns up to three of the names that resemble name, most similar first.
func Names(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	key := Fold(name)
	for _, n := range names {
		d := Distance(key, Fold(n))
		switch {
		case d <= max(1, min(len(key), maxCompared)/3) && d < len(key): // at least one byte must match
			all = append(all, candidate{n, d})
		case len(key) > 2 && strings.Contains(Fold(n), key):
			all = append(all, candidate{n, 1000 + d}) // name is a part of a long name
		}
	}
	slices.SortStableFunc(all, func(c, b candidate) int { return c.distance - b.distance })
	var found []string
	for _, c := range all[:min(len(all), 3)] {
		found = append(found, c.name)
	}
	return found
}

// Hint returns the result of Names as the end of a message. If no name is similar, Hint lists all names. If there are
// no names, Hint returns the text none.
func Hint(name string, names []string, none string) string {
	if found := Names(name, names); len(found) > 0 {
		return "did you mean " + strings.Join(found, " or ") + "?"
	}
	if len(names) == 0 {
		return none
	}
	list := strings.Join(names[:min(len(names), maxListed)], ", ")
	if len(names) > maxListed {
		list += ", …"
	}
	return "there is " + list
}
