//go:build !unix

package sign

import "os/exec"

// lead does nothing: here the context ends the program alone.
func lead(*exec.Cmd) {}
