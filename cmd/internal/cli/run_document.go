package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/config"
)

// runDocument returns the configuration of the API that a document describes.
func runDocument(cmd *cobra.Command, location string, d *flags.Document, remote *flags.Remote, share string) (config.Server, error) {
	if err := flags.Useless(cmd.Flags(), "an MCP server", "env", "env-all", "cwd", "transport", "era"); err != nil {
		return config.Server{}, err
	}
	s, err := d.Server(location, remote, share)
	if err != nil {
		return s, err
	}
	if err := s.Rest.Validate(); err != nil {
		return s, exit.With(exit.Usage, err)
	}
	s.Rest.Remarks = true
	return s, nil
}

// noProgram refuses a path that is a document or a configuration, not a program.
func noProgram(path, cwd string) error {
	ext := strings.ToLower(filepath.Ext(path))
	if !slices.Contains([]string{".yaml", ".yml", ".json", ".html", ".htm"}, ext) {
		return nil
	}
	at := path
	if !filepath.IsAbs(at) {
		at = filepath.Join(cwd, at)
	}
	info, err := os.Stat(at)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 && runtime.GOOS != "windows" {
		return nil
	}
	return exit.Usagef("%s is neither a program nor an OpenAPI document, which has openapi, swagger or paths at its top. Serve a configuration file with 'mcp-bridge serve -c FILE'", path)
}
