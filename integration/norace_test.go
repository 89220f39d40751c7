//go:build !race

package integration

const raced = false
