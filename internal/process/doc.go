// Package process ends a program on Windows, with all programs that it has started. The package is empty on other
// systems, which have process groups.
package process
