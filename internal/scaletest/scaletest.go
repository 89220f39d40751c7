// Package scaletest decides which tests run, and how many repetitions and how large inputs they use. "make test" runs,
// in short mode, the tests that need nothing but memory. "make integration" runs the tests that start programs. "make
// soak" runs everything in full.
package scaletest

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// Whole reports whether BRIDGE_TEST_MATRIX is "all", as "make soak" sets it. Then everything runs in full.
var Whole = os.Getenv("BRIDGE_TEST_MATRIX") == "all"

// Integration skips a test in short mode, as in "make test", because the test starts programs or compiles.
func Integration(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(`starts programs: "make integration" runs it`)
	}
}

// Large skips a test that takes too long to run with each change.
func Large(t testing.TB) {
	t.Helper()
	if !Whole {
		t.Skip(`takes long: "make soak" runs it`)
	}
}

// Of returns its argument whole if the variable Whole is true, else part.
func Of(part, whole int) int {
	if Whole {
		return whole
	}
	return part
}

// Alone is for computations in a single goroutine, where the race detector finds nothing but takes ten times as long.
// If the detector is on, Alone returns part, else whole.
func Alone(part, whole int) int {
	if Raced {
		return part
	}
	return whole
}

// Unraced skips a test with a long computation in a single goroutine if the race detector is on. "make soak" runs the
// test, and so does "make test" without RACE.
func Unraced(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("computes in one goroutine, for long: runs without the race detector, in \"make test\"")
	}
}

// Waits is for a package whose tests mostly wait. It lets atOnce parallel tests run, even on fewer processors, unless
// -parallel is set. TestMain calls it.
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

// AtOnce is the variable that makes a program with the race detector exit at once. Otherwise, the program would wait a
// second for reports of running goroutines.
const AtOnce = "GORACE=atexit_sleep_ms=0"
