package stdio

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// A child that has not read the question is starting, however long that takes:
// it gets no initialize, and is not ended.
func TestColdStart(t *testing.T) {
	quiet(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	var a *Adapter
	var journal func() string
	looked, waited := 0, make(chan struct{})
	log := slog.New(seen{"has not read", func() {
		if looked++; looked == silenceChecks+1 {
			a.silence = time.Hour // it may be slow when it has read
			close(waited)
		}
	}})
	a, journal = scripted(t, conn.Options{Log: log}, part{Hold: gate, Discover: isModern, Initialize: tooOld})
	a.silence = 100 * time.Millisecond
	var era string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		era, err = opened(t, a, adaptertest.ModernCaller())
	}()
	<-waited
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	<-done
	if era != "modern" || err != nil {
		t.Errorf("the connection is %q, %v", era, err)
	}
	if got := journal(); got != asModern {
		t.Errorf("the server has received %q", got)
	}
}
