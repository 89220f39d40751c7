//go:build race

package scaletest

// Raced reports whether the race detector is on.
const Raced = true
