package flags

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

// unread is a file that takes nothing before read is closed.
type unread struct {
	bytes.Buffer
	read chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	<-u.read
	return u.Buffer.Write(b)
}

// Whoever logs does not wait for the reader of the log. The log says itself how many lines are missing.
func TestLogUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Log
		c := &cobra.Command{}
		l.Add(c)
		u := &unread{read: make(chan struct{})}
		o := terminal.NewOutput(u)
		log, err := l.Logger(o)
		if err != nil {
			t.Fatal(err)
		}
		text, logged := strings.Repeat("x", 1000), 10_000
		at := time.Now()
		for range logged {
			log.Info(text)
		}
		if time.Since(at) > 0 { // in a bubble time passes only while everybody waits
			t.Error("a line has waited")
		}
		close(u.read)
		o.Close()
		whole, missing := 0, 0
		for line := range strings.Lines(u.String()) {
			var said struct {
				Msg   string
				Count int
			}
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if missing += said.Count; said.Msg == text {
				whole++
			}
		}
		if missing == 0 || whole+missing != logged {
			t.Errorf("%d lines written and %d left out of %d", whole, missing, logged)
		}
	})
}
