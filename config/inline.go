package config

import (
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// document stores an inline document, with the line numbers of the file. It sets into to the path of the file, from
// which references in the document start.
func (d *decoder) document(s *strict.Slot, n *yaml.Node, into *string) bool {
	if len(strict.Resolve(n).Content) == 0 {
		return d.Mistyped(s, n, "a file, a URL, or a document")
	}
	if list, ok := d.Quiet().Entries("", n); ok && slices.ContainsFunc(list, func(e strict.Entry) bool { return e.Key == "url" || e.Key == "file" }) {
		d.Fault(s.Line, "%s%s has a key that no document has: write the file or the URL itself, and headers for it in openapi_headers", s.Section.Where, s.Label)
		return false
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
