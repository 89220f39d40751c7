// Package scaletest says which tests run, and their extent: the number of repetitions and the size of the input. "make
// test" runs what needs nothing but memory, in short mode; "make integration" what starts programs; "make soak"
// everything in full.
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

// Integration skips a test in short mode, as in "make test": the test starts programs, or compiles.
func Integration(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(`starts programs: "make integration" runs it`)
	}
}

// Large skips a test that costs more than each change has time for.
func Large(t testing.TB) {
	t.Helper()
	if !Whole {
		t.Skip(`takes long: "make soak" runs it`)
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
// long. It returns part if the detector is on, else whole.
func Alone(part, whole int) int {
	if Raced {
		return part
	}
	return whole
}

// Unraced skips a test with a long computation in a single goroutine if the race detector is on. "make test" without
// RACE runs it, and "make soak".
func Unraced(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("computes in one goroutine, for long: runs without the race detector, in \"make test\"")
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
