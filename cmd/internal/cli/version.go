package cli

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
)

func newVersion(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mcp-bridge version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version())
			return err
		},
	}
}

func version() string {
	return strings.Join([]string{"mcp-bridge", server.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}, " ")
}
