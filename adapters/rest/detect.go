package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Kind is what a file or a URL holds, as Detect tells it.
type Kind int

// The kinds.
const (
	OtherKind     Kind = iota // neither of those below
	DocumentKind              // an OpenAPI document
	Configuration             // a file of the bridge or of a desktop client
)

// Detect tells by its content what a file holds. A file that is not there, is a
// program, or cannot be parsed is OtherKind.
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

// DetectURL tells what is at a URL. It reads nothing, unless the path of the URL
// looks like that of a document: a server would take the request for a client's.
func (c *Config) DetectURL(ctx context.Context) (Kind, error) {
	u, err := url.Parse(c.OpenAPI)
	if err != nil || !documentPath(u.Path) {
		return OtherKind, nil
	}
	f, err := c.newFetcher()
	if err != nil {
		return OtherKind, err
	}
	defer f.close()
	data, err := f.Fetch(ctx, c.OpenAPI)
	if err != nil {
		return OtherKind, err
	}
	return kindOf(data), nil
}

// documentPath reports whether APIs have their documents at such a path.
func documentPath(p string) bool {
	last := strings.ToLower(path.Base(p))
	switch path.Ext(last) {
	case ".json", ".yaml", ".yml":
		return true
	}
	return last == "openapi" || last == "swagger" || last == "api-docs"
}

func kindOf(data []byte) Kind {
	root, _, err := tree.Parse(data, 0, func(int32, string) {})
	switch {
	case err != nil:
	case root.Get("openapi") != nil, root.Get("swagger") != nil, root.Get("paths").Is(tree.Object):
		return DocumentKind
	case root.Get("servers").Is(tree.Object), root.Get("mcpServers").Is(tree.Object):
		return Configuration
	}
	return OtherKind
}
