//go:build race

package integration

// raced: the binaries under test are built with the race detector when the
// tests are.
const raced = true
