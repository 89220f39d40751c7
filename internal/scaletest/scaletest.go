// Package scaletest says how much of a large test runs: how often it repeats something,
// and how large its input is.
package scaletest

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// Whole is set if BRIDGE_TEST_MATRIX is "all", as "make soak" has it: everything runs in
// full.
var Whole = os.Getenv("BRIDGE_TEST_MATRIX") == "all"

// Large skips a test that costs more than "make test" has time for. It runs if
// BRIDGE_TEST_MATRIX is "part", as in CI, or "all".
func Large(t testing.TB) {
	t.Helper()
	if !Whole && os.Getenv("BRIDGE_TEST_MATRIX") != "part" {
		t.Skip("takes long: BRIDGE_TEST_MATRIX=part or all runs it")
	}
}

// Of returns whole if the whole was asked for, and otherwise part.
func Of(part, whole int) int {
	if Whole {
		return whole
	}
	return part
}

// Alone is for what a test computes in a single goroutine: the race detector
// has nothing to find there, but takes ten times as long. It returns whole if
// the detector is off, as "make alone" has it, and otherwise part.
func Alone(part, whole int) int {
	if Raced {
		return part
	}
	return whole
}

// Unraced is for a test that computes for long in a single goroutine. It skips the test
// if the race detector is on: "make alone" runs it.
func Unraced(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("computes in one goroutine, for long: runs without the race detector")
	}
}

// Waits is for a package whose tests wait most of the time, for a program or for a time to
// pass: so many of those that may run in parallel do so, also on fewer processors, unless
// -parallel says how many. It is called by TestMain.
func Waits(atOnce int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given || runtime.GOMAXPROCS(0) >= atOnce {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		panic(err)
	}
}

// AtOnce is the variable with which a program ends at once that has the race detector.
// Otherwise it would wait for a second, for reports of goroutines that still run.
const AtOnce = "GORACE=atexit_sleep_ms=0"
