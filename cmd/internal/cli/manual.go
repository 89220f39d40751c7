//go:build manual

package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// addManual adds the command that writes the manual pages. Only the build for a release has this command, because of
// the command's libraries.
func addManual(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use:     "manual DIR MONTH VERSION",
		Hidden:  true,
		Short:   "Write the manual pages into a folder",
		Example: `  mcp-bridge manual man/man1 "January 2026" "mcp-bridge 1.2.3"`,
		Args:    cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := time.Parse("January 2006", args[1])
			if err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Manual: "mcp-bridge", Source: args[2], Date: &at}, args[0])
		},
	})
}
