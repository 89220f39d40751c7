package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/demo"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

func newDemo(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "A small server to try things with",
		Long: `demo is an MCP server on stdin and stdout, for a first try: nothing else must be
installed. It has tools (echo, get-sum, get-tiny-image, long-text and slow), a
resource and a prompt. Nothing that it does has an effect.

  mcp-bridge run -- mcp-bridge demo
  mcp-bridge call get-sum a=2 b=3 -- mcp-bridge demo`,
		Example: "  mcp-bridge demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if is, _ := terminal.Is(stderr); is {
				fmt.Fprintln(stderr, "mcp-bridge: waiting for a client on stdin. To try it: mcp-bridge run -- mcp-bridge demo")
			}
			return demo.Serve(cmd.Context(), io.NopCloser(cmd.InOrStdin()), unclosed{stdout})
		},
	}
}

// unclosed is a writer that the server may not close.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }
