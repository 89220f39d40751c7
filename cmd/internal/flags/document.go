package flags

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
)

// Document holds the flags for a server that an OpenAPI document describes.
type Document struct {
	BaseURL, mode string
	expose        []string
	readOnly      bool
}

// DocumentNames are the names of the flags of Document.
var DocumentNames = []string{"base-url", "mode", "expose", "read-only"}

func (d *Document) add(f *pflag.FlagSet) {
	f.StringVar(&d.BaseURL, "base-url", "", "address of the API (default: that in the document)")
	f.StringVar(&d.mode, "mode", rest.ModeAuto, "offer operations as tools, or by search: tools, search or auto")
	f.StringArrayVar(&d.expose, "expose", nil, "offer only operations that fit, such as 'tag pets' or 'not DELETE' (repeatable)")
	f.BoolVar(&d.readOnly, "read-only", false, "leave out operations that may change something")
}

// Is reports whether an argument is the path or the URL of an OpenAPI document. For a file, the content decides. A URL
// is read only if its path looks like a document; with BaseURL, every URL is a document. caFile is the value of
// --ca-file. The error means that the argument is a configuration or cannot be read.
func (d *Document) Is(ctx context.Context, command, location, caFile string) (bool, error) {
	if IsURL(location) {
		if d.BaseURL != "" {
			return true, nil
		}
		kind, err := (&rest.Config{OpenAPI: location, CAFile: caFile}).DetectURL(ctx)
		if err != nil {
			return false, exit.With(exit.Server, fmt.Errorf("%s cannot be read: %w", Bare(location), err))
		}
		if u, err := url.Parse(location); err == nil && kind != rest.DocumentKind && isDocument.MatchString(u.Path) {
			return false, exit.Usagef("what is at %s is not an OpenAPI document: that has openapi, swagger or paths at its top", Bare(location))
		}
		return kind == rest.DocumentKind, nil
	}
	kind, err := rest.Detect(location)
	if _, missing := os.Stat(location); missing != nil && command != "run" && isPath.MatchString(location) {
		return false, exit.Usagef("%s: %w", location, errors.Unwrap(missing))
	}
	switch {
	case err != nil:
		return false, exit.With(exit.Usage, err)
	case kind == rest.Configuration && command == "run":
		return false, exit.Usagef("%s is a configuration file: serve it with 'mcp-bridge serve -c %[1]s'", location)
	case kind == rest.Configuration:
		return false, exit.Usagef("%s is a configuration file: name one of its servers, as in 'mcp-bridge %s NAME -c %[1]s'", location, command)
	case kind != rest.DocumentKind && command != "run" && isDocument.MatchString(location):
		return false, exit.Usagef("%s is not an OpenAPI document: that has openapi, swagger or paths at its top", location)
	case kind != rest.DocumentKind && d.BaseURL != "":
		return false, exit.Usagef("--base-url needs an OpenAPI document, and %s is not one: it needs openapi, swagger or paths at its top", location)
	}
	return kind == rest.DocumentKind, nil
}

// Bare returns a URL without its user and its query, which may be secrets.
func Bare(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the URL"
	}
	return (&url.URL{
		Scheme: u.Scheme,
		Host:   u.Host,
		Path:   u.Path,
	}).String()
}

// isDocument matches names of documents. Programs do not have such names.
var isDocument = regexp.MustCompile(`(?i)\.(json|ya?ml)$`)

// isPath matches arguments that can only be paths.
var isPath = regexp.MustCompile(`^\.{0,2}[/\\]|\.(json|ya?ml)$`)

// MayBeDocument reports whether a target may be a document and not the name of a server.
func MayBeDocument(target string) bool {
	return IsURL(target) || strings.ContainsAny(target, `./\`)
}

// server returns the configuration for the API of a document. headers are sent to the API, but not to the origin of the
// document.
func (d *Document) server(location string, headers *Remote, share string) (config.Server, error) {
	own, secrets, err := headers.Values()
	if err != nil {
		return config.Server{}, err
	}
	base := filepath.Base(location)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if u, err := url.Parse(location); err == nil && IsURL(location) {
		name = u.Hostname()
	}
	s := config.DefaultServer(nameOf(name), gateway.Share(share))
	s.Share = gateway.Share(share) // Validate refuses a wrong value
	s.Rest = &rest.Config{
		OpenAPI:  location,
		BaseURL:  d.BaseURL,
		Mode:     d.mode,
		Expose:   d.expose,
		ReadOnly: d.readOnly,
		Headers:  own,
		Secrets:  secrets,
		CAFile:   headers.CAFile,
	}
	return s, nil
}
