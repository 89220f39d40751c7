package main

import "strings"

// table is rows of cells under a heading. Columns without any text are left
// out.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// format returns the table, every line indented by indent. Cells become single
// lines; width cuts the last column of a line that is longer, 0 cuts nothing.
func (t *table) format(indent string, width int, bold func(string) string) string {
	widths := make([]int, len(t.head))
	for _, row := range t.rows {
		for i := range row {
			row[i] = oneLine(row[i])
			widths[i] = max(widths[i], columns(row[i]))
		}
	}
	last := 0
	for i, w := range widths {
		if w > 0 {
			last = i
			widths[i] = max(w, columns(t.head[i]))
		}
	}
	var all strings.Builder
	write := func(row []string, bold func(string) string) {
		var b strings.Builder
		used := columns(indent)
		b.WriteString(indent)
		for i, cell := range row {
			switch {
			case i == last:
				if width > 0 {
					cell = cut(cell, max(width-used, 10))
				}
				if cell != "" {
					cell = bold(cell)
				}
				b.WriteString(cell)
			case widths[i] > 0:
				pad := widths[i] - columns(cell) + 2
				used += widths[i] + 2
				b.WriteString(bold(cell) + strings.Repeat(" ", pad))
			}
		}
		all.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	write(t.head, bold)
	for _, row := range t.rows {
		write(row, plain)
	}
	return all.String()
}

func plain(s string) string { return s }
