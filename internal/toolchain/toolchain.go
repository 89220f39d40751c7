// Package toolchain knows the versions of Go with an HTTP/2 server that any client can crash.
package toolchain

import (
	"go/version"
	"strings"
)

// Fixed names the versions of Go that replace a vulnerable version.
const Fixed = "Go 1.26.9, 1.27.2 or newer"

// Vulnerable reports whether a version of Go, such as go1.26.8, has GO-2026-6617 (CVE-2026-97032). With this fault, a
// client crashes a program that serves HTTP/2 by changing the size of its header table during answers. Vulnerable does
// not judge development versions.
func Vulnerable(v string) bool {
	v, _, _ = strings.Cut(v, " ") // an experiment follows the version
	return version.IsValid(v) && (version.Compare(v, "go1.26.9") < 0 || version.Compare(v, "go1.27") >= 0 && version.Compare(v, "go1.27.2") < 0)
}
