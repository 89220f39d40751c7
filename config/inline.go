package config

import (
	"path/filepath"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// document notes a document that stands in the file, as the lines that it has
// there, and everything else blank: so what is said of it has the file's lines.
// References in it start from the file, which into is set to.
func (d *decoder) document(x *strict.Slot, n ast.Node, into *string) bool {
	text := d.Source(d.Resolve(n))
	if text == nil {
		return d.Mistyped(x, n, "a file, a URL, or a document")
	}
	if *into = d.File; d.dir != "" {
		*into = filepath.Join(d.dir, filepath.Base(d.File))
	}
	if d.documents == nil {
		d.documents = map[*string][]byte{}
	}
	d.documents[into] = text
	return true
}
