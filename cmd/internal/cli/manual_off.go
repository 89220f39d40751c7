//go:build !manual

package cli

import "github.com/spf13/cobra"

func addManual(*cobra.Command) {}
