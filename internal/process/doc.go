// Package process ends a program on Windows together with all that it has started. On
// other systems process groups do that, and the package is empty.
package process
