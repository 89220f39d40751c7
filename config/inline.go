package config

import (
	"path/filepath"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// document stores a document that is written in the file, with the line numbers of the file. It
// sets into to the file, which references in the document start from.
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
