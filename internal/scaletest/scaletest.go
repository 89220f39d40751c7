// Package scaletest sets the extent of a large test: the number of repetitions and the size of its input.
package scaletest

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// Whole is set if BRIDGE_TEST_MATRIX is "all", as "make soak" sets it: everything runs in full.
var Whole = os.Getenv("BRIDGE_TEST_MATRIX") == "all"

// Large skips a test that costs more than "make test" has time for. It runs if
// BRIDGE_TEST_MATRIX is "part", as in CI, or "all".
func Large(t testing.TB) {
	t.Helper()
	if !Whole && os.Getenv("BRIDGE_TEST_MATRIX") != "part" {
		t.Skip("takes long: BRIDGE_TEST_MATRIX=part or all runs it")
	}
}

// Of returns its argument whole if the variable Whole is set, else part.
func Of(part, whole int) int {
	if Whole {
		return whole
	}
	return part
}

// Alone is for computations in a single goroutine: the race detector finds nothing there but takes ten times as
// long. It returns part if the detector is on, else whole. "make alone" runs without the detector.
func Alone(part, whole int) int {
	if Raced {
		return part
	}
	return whole
}

// Unraced skips a test with a long computation in a single goroutine if the race detector is on. "make alone"
// runs it.
func Unraced(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("computes in one goroutine, for long: runs without the race detector")
	}
}

// Waits is for a package whose tests mostly wait. It lets that many parallel tests run, also on fewer
// processors, unless -parallel is set. TestMain calls it.
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

// AtOnce is the variable that makes a program with the race detector exit at once. It would otherwise wait a
// second for reports of running goroutines.
const AtOnce = "GORACE=atexit_sleep_ms=0"
