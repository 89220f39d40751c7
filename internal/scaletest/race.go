//go:build race

package scaletest

// Raced is set if the race detector is on.
const Raced = true
