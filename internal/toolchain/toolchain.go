// Package toolchain knows the versions of Go whose HTTP/2 server a stranger can end.
package toolchain

import (
	"go/version"
	"strings"
)

// Fixed says what to build with in place of a vulnerable version.
const Fixed = "Go 1.26.9, 1.27.2 or newer"

// Vulnerable reports whether a version of Go, such as go1.26.8, has GO-2026-6617
// (CVE-2026-97032): a client that changes the size of its header table while answers are
// written ends a program that serves HTTP/2. It knows nothing of development versions.
func Vulnerable(v string) bool {
	v, _, _ = strings.Cut(v, " ") // an experiment stands behind the version
	return version.IsValid(v) && (version.Compare(v, "go1.26.9") < 0 || version.Compare(v, "go1.27") >= 0 && version.Compare(v, "go1.27.2") < 0)
}
