package config

import (
	"path/filepath"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// document notes a document that stands in the file, as the lines that it has
// there, and everything else blank: so what is said of it has the file's lines.
// References in it start from the file, which into is set to.
func (d *decoder) document(x *strict.Slot, n *yaml.Node, into *string) bool {
	if len(strict.Resolve(n).Content) == 0 {
		return d.Mistyped(x, n, "a file, a URL, or a document")
	}
	if *into = d.File; d.dir != "" {
		*into = filepath.Join(d.dir, filepath.Base(d.File))
	}
	if d.documents == nil {
		d.documents = map[*string][]byte{}
	}
	d.documents[into] = strict.Source(n)
	return true
}
