package stdio

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/adapters/upstream"
)

// A child that has not read the question is starting, however long that takes:
// it gets no initialize, and is not ended.
func TestColdStart(t *testing.T) {
	quiet(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	var log logged
	a, journal := scripted(t, upstream.Options{Log: log.logger()}, part{Hold: gate, Discover: isModern, Initialize: tooOld})
	a.silence = 800 * time.Millisecond
	var era string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		era, err = opened(t, a, adaptertest.ModernCaller())
	}()
	eventually(t, "it is waited for", func() bool { return strings.Count(log.String(), "has not read") > looks })
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
