package aggregate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/era"
)

// The first list has a server that starts within the time that Start says. A server whose connection is open has 10 s for
// its answer.
func TestListWait(t *testing.T) {
	for _, test := range []struct {
		opens, answers, took time.Duration // the second from the first, the last from the beginning of the list
		listed               bool
	}{
		{15 * time.Second, 0, 15 * time.Second, true},
		{25 * time.Second, 0, 20 * time.Second, false},
		{3 * time.Second, 9 * time.Second, 12 * time.Second, true},
		{3 * time.Second, time.Hour, 13 * time.Second, false},
		{15 * time.Second, time.Hour, 20 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
			two := newActor(t, "two", era.Rev20251125, caps, nil)
			s := play(t, true, one, two)
			began, done := time.Now(), s.ask("tools/list", `{}`)
			c := two.Next()
			time.AfterFunc(test.opens, func() {
				c.Opened()
				time.AfterFunc(test.answers, func() { c.Answer(t, `{"tools":[{"name":"y"}]}`) })
			})
			got := <-done
			if took := time.Since(began); took != test.took || strings.Contains(got, "two__y") != test.listed || !strings.Contains(got, "one__x") {
				t.Errorf("%v: after %v the list is %s", test, took, got)
			}
			time.Sleep(2 * time.Hour)
			s.end()
		})
	}
}
