package document

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Kind is what a file or a URL contains.
type Kind int

const (
	OtherKind     Kind = iota // none of the others
	DocumentKind              // an OpenAPI document
	Configuration             // a file of the bridge or of a desktop client
)

// Detect returns the kind of a file by its content. Missing files, programs and files that cannot be
// parsed are OtherKind. A file with a document's first key is DocumentKind even if it cannot be
// parsed.
func Detect(location string) (Kind, error) {
	info, err := os.Stat(location)
	if err != nil || !info.Mode().IsRegular() {
		return OtherKind, nil
	}
	f, err := os.Open(location)
	if err != nil {
		return OtherKind, fmt.Errorf("%s: %w", location, errors.Unwrap(err))
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	if head = head[:n]; bytes.HasPrefix(head, []byte("#!")) || bytes.IndexByte(head, 0) >= 0 {
		return OtherKind, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxDocument))
	if err != nil {
		return OtherKind, fmt.Errorf("%s: %w", location, err)
	}
	return kindOf(append(head, rest...)), nil
}

// DetectURL returns the kind of the URL in o.Location. It reads the URL only if the path looks like
// that of a document, since an MCP server would take the request for that of a client.
func DetectURL(ctx context.Context, o Options) (Kind, error) {
	u, err := url.Parse(o.Location)
	if err != nil || !documentPath(u.Path) {
		return OtherKind, nil
	}
	f, err := newFetcher(&o)
	if err != nil {
		return OtherKind, err
	}
	defer f.close()
	data, err := f.Fetch(ctx, o.Location)
	if err != nil {
		return OtherKind, err
	}
	return kindOf(data), nil
}

// documentPath reports whether the path looks like that of a document.
func documentPath(p string) bool {
	last := strings.ToLower(path.Base(p))
	switch path.Ext(last) {
	case ".json", ".yaml", ".yml":
		return true
	}
	return last == "openapi" || last == "swagger" || last == "api-docs"
}

// documentKey matches the key with which most documents begin.
var documentKey = regexp.MustCompile(`(?m)^[\s{]*["']?(openapi|swagger)["']?\s*:`)

func kindOf(data []byte) Kind {
	root, _, err := tree.Parse(data, 0, func(int32, string) {})
	switch {
	case err != nil:
		if documentKey.Match(data) { // the error of reading the document will name the line
			return DocumentKind
		}
	case root.Get("openapi") != nil, root.Get("swagger") != nil, root.Get("paths").Is(tree.Object):
		return DocumentKind
	case root.Get("servers").Is(tree.Object), root.Get("mcpServers").Is(tree.Object):
		return Configuration
	}
	return OtherKind
}
