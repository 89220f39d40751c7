package main

import (
	"slices"
	"strings"
)

// near returns those of names that somebody who wrote name may have meant, the
// likeliest first, three at most.
func near(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	key := fold(name)
	for _, n := range names {
		d := distance(key, fold(n))
		switch {
		case d <= max(1, min(len(key), maxCompared)/3) && d < len(key): // something must be right
			all = append(all, candidate{n, d})
		case len(key) > 2 && strings.Contains(fold(n), key):
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

// meant is near as the end of a message; when none is near it has all names, and
// when there are none it is none.
func meant(name string, names []string, none string) string {
	if found := near(name, names); len(found) > 0 {
		return "did you mean " + strings.Join(found, " or ") + "?"
	}
	if len(names) == 0 {
		return none
	}
	list := strings.Join(names[:min(len(names), 20)], ", ")
	if len(names) > 20 {
		list += ", …"
	}
	return "there is " + list
}

// fold makes getUser, get-user and get_user equal.
func fold(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}

// maxCompared bounds what is compared of a name: a server may send what it likes.
const maxCompared = 64

// distance is the number of letters to insert, delete or replace to get from a
// to b (Levenshtein).
func distance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
