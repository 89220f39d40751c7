package terminal

import (
	"slices"
	"strings"
)

// Table formats rows under a heading. It omits columns without text.
type Table struct {
	Head []string
	// Drop names columns that are dropped, in this order, until the rows fit into the width.
	Drop []string
	// Paint colors a cell. It may be nil.
	Paint func(column, cell string) string
	rows  [][]string
}

// Add adds a row, with a cell for each column.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

const (
	maxCell = 256 // bounds the width of a cell, because all cells of a column are padded to the widest
	minLast = 24  // minimum columns of the last cell before other columns are dropped
)

// Format returns the table with each line indented. Cells become single lines and are cut after maxCell, except in the
// last column. A line longer than width is cut; 0 means no limit. bold formats the heading and may be nil.
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
	for i, w := range widths {
		if w > 0 {
			widths[i] = max(w, Columns(t.Head[i]))
		}
	}
	for _, name := range t.Drop {
		if width == 0 || Columns(indent)+needed(widths) <= width {
			break
		}
		widths[slices.Index(t.Head, name)] = 0
	}
	last := lastOf(widths)
	var all strings.Builder
	write := func(row []string, paint func(column, cell string) string) {
		var b strings.Builder
		used := Columns(indent)
		b.WriteString(indent)
		for i, cell := range row {
			if widths[i] == 0 && i != last || width > 0 && used >= width {
				continue
			}
			if width > 0 {
				cell = Cut(cell, width-used)
			}
			if cell != "" {
				b.WriteString(paint(t.Head[i], cell))
			}
			if i != last {
				b.WriteString(strings.Repeat(" ", widths[i]-Columns(cell)+2))
				used += widths[i] + 2
			}
		}
		all.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	write(t.Head, func(_, cell string) string { return bold(cell) })
	for _, row := range t.rows {
		if t.Paint != nil {
			write(row, t.Paint)
		} else {
			write(row, func(_, cell string) string { return cell })
		}
	}
	return all.String()
}

// lastOf returns the index of the last column with text, or 0 if there is none.
func lastOf(widths []int) (last int) {
	for i, w := range widths {
		if w > 0 {
			last = i
		}
	}
	return last
}

// needed returns the width that rows need. The last cell counts with at most minLast columns.
func needed(widths []int) (n int) {
	last := lastOf(widths)
	for i, w := range widths {
		switch {
		case i == last:
			n += min(w, minLast)
		case w > 0:
			n += w + 2
		}
	}
	return n
}

func plain(s string) string { return s }
