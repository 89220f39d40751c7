package stdio

import (
	"bytes"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A child that writes to its standard error without end logs so many lines, and
// how many were left out; one that writes as programs do logs all.
func TestErrorLog(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int           // of a line
		every  time.Duration // between lines
		n      int
		logged int // about
	}{
		{"a start with much to say", 80, 0, 900, 900},
		{"steady", 80, 20 * time.Millisecond, 5000, 5000},
		{"a flood", 80, 10 * time.Microsecond, 1_000_000, 1000 + 10*100},
		{"a flood of long lines", 8 << 10, time.Millisecond, 10_000, (1000 + 10*100) / 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				e := newErrorLog(slog.New(slog.NewTextHandler(&out, nil)))
				line := []byte(strings.Repeat("x", tc.size))
				for range tc.n {
					e.add(line)
					time.Sleep(tc.every)
				}
				time.Sleep(leftEvery)
				synctest.Wait()
				logged := strings.Count(out.String(), "msg=stderr")
				left, reports := 0, 0
				for _, m := range regexp.MustCompile(`level=WARN .* lines=(\d+)`).FindAllStringSubmatch(out.String(), -1) {
					n, _ := strconv.Atoi(m[1])
					left, reports = left+n, reports+1
				}
				if logged+left != tc.n || logged < tc.logged*99/100 || logged > tc.logged*101/100 || reports > 2 {
					t.Errorf("%d of %d lines logged, want about %d; %d left out in %d reports", logged, tc.n, tc.logged, left, reports)
				}
				e.report() // nothing more
				if strings.Count(out.String(), "WARN") != reports {
					t.Error("reported twice")
				}
			})
		})
	}
}
