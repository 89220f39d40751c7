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
		{"a flood", 80, 10 * time.Microsecond, 100_000, 1000 + 100},
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

// The reason that a program prints before it ends stays, though a stack or log lines surround it.
func TestTail(t *testing.T) {
	frames := strings.Repeat("    at Module._load (node:internal/modules/cjs/loader:1091:12)\n", 12)
	for _, test := range []struct{ name, text, want string }{
		{"Node.js", "starting\nserver.js:2\nError: missing API key\n" + frames + "\nNode.js v20.20.2", "starting\nserver.js:2\nError: missing API key\nNode.js v20.20.2"},
		{"Java", "Exception in thread \"main\": missing API key\n" + strings.ReplaceAll(frames, "    ", "\t"), "Exception in thread \"main\": missing API key"},
		{"the last lines", strings.Repeat("part\n", 20) + "FATAL", strings.Repeat("part\n", tailLines-1) + "FATAL"},
		{"words", "at first\n  attempt", "at first\n  attempt"},
	} {
		var kept tail
		for line := range strings.SplitSeq(test.text, "\n") {
			kept.add([]byte(line))
		}
		if got := kept.String(); got != test.want {
			t.Errorf("%s: kept %q, want %q", test.name, got, test.want)
		}
	}
}
