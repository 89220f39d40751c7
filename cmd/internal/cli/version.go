package cli

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/internal/toolchain"
)

func newVersion(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mcp-bridge version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version(runtime.Version()))
			return err
		},
	}
}

// version describes the program, including the version of Go that built it.
func version(goVersion string) string {
	line := strings.Join([]string{"mcp-bridge", server.Version(), goVersion, runtime.GOOS + "/" + runtime.GOARCH}, " ")
	if toolchain.Vulnerable(goVersion) {
		line += ", without HTTP/2 (GO-2026-6617): build it with " + toolchain.Fixed
	}
	return line
}
