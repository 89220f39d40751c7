// Package similar finds the names that somebody may have meant who wrote one
// that does not exist.
//
// It promises little work whatever it is given: of each name only the first
// letters are compared. It knows nothing of what the names stand for, so
// callers choose which of its answers are near enough.
package similar

import (
	"slices"
	"strings"
)

// maxCompared bounds what is compared of a name: strangers send what they like.
const maxCompared = 100

// maxListed bounds the names that a hint lists.
const maxListed = 20

// Fold takes away what names are often mistaken in: it makes getUser, get-user
// and get_user equal.
func Fold(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
}

// Distance is the number of bytes to insert, delete or replace, or of neighbours
// to swap, to get from a to b (optimal string alignment).
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

// Names returns those of names that somebody who wrote name may have meant, the
// likeliest first, three at most.
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
		case d <= max(1, min(len(key), maxCompared)/3) && d < len(key): // something must be right
			all = append(all, candidate{n, d})
		case len(key) > 2 && strings.Contains(Fold(n), key):
			all = append(all, candidate{n, 1000 + d}) // a part of a long name
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.distance - b.distance })
	var found []string
	for _, c := range all[:min(len(all), 3)] {
		found = append(found, c.name)
	}
	return found
}

// Hint is Names as the end of a message. When none is near it has all names,
// and when there are none it is none.
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
