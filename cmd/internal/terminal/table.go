package terminal

import "strings"

// Table formats rows under a heading. It omits columns without text.
type Table struct {
	Head []string
	rows [][]string
}

// Add adds a row, with a cell for each column.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// maxCell bounds the width of a cell: each other cell of its column is filled up to that.
const maxCell = 256

// Format returns the table with each line indented. Cells become single lines, and lose what is
// beyond maxCell, except in the last column. A line longer
// than width loses the end of its last column; 0 means no limit. bold formats the heading; it
// may be nil.
func (t *Table) Format(indent string, width int, bold func(string) string) string {
	if bold == nil {
		bold = plain
	}
	widths := make([]int, len(t.Head))
	for _, row := range t.rows {
		for i := range row {
			if row[i] = OneLine(row[i]); i < len(row)-1 {
				row[i] = Cut(row[i], maxCell)
			}
			widths[i] = max(widths[i], Columns(row[i]))
		}
	}
	last := 0
	for i, w := range widths {
		if w > 0 {
			last = i
			widths[i] = max(w, Columns(t.Head[i]))
		}
	}
	var all strings.Builder
	write := func(row []string, bold func(string) string) {
		var b strings.Builder
		used := Columns(indent)
		b.WriteString(indent)
		for i, cell := range row {
			switch {
			case i == last:
				if width > 0 {
					cell = Cut(cell, max(width-used, 10))
				}
				if cell != "" {
					cell = bold(cell)
				}
				b.WriteString(cell)
			case widths[i] > 0:
				pad := widths[i] - Columns(cell) + 2
				used += widths[i] + 2
				b.WriteString(bold(cell) + strings.Repeat(" ", pad))
			}
		}
		all.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	write(t.Head, bold)
	for _, row := range t.rows {
		write(row, plain)
	}
	return all.String()
}

func plain(s string) string { return s }
