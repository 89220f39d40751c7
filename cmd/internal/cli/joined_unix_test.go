//go:build unix

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// One of several instances is said to serve, on the terminal and to the service manager,
// when it has joined the others, and /readyz says the same.
func TestServeJoins(t *testing.T) {
	store := redistest.Start(t)
	store.Kill()
	at := porttest.Address(t)
	config := file(t, "bridge.yaml", fmt.Sprintf("listen: %s\nreload: off\ncluster:\n  redis: redis://%s\n  secret: a secret of 32 characters or more\n  listen: 127.0.0.1:0\n  advertise: 127.0.0.1\nservers:\n  one: { stdio: { command: cat } }\n", at, store.Address))
	manager := listenManager(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	log := &adaptertest.Log{}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", config, "--json"}, stdout, log)
		stdout.Close()
	}()
	said, told := make(chan string), make(chan string, 1)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	go func() {
		got := manager()
		for strings.HasPrefix(got, "STATUS=waiting") { // a slow machine
			got = manager()
		}
		told <- got
	}()
	readyz := func() int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		a.Body.Close()
		return a.StatusCode
	}
	await(t, "the store is found to be away", func() bool { return strings.Contains(log.String(), "does not reach the store") })
	if got := readyz(); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d before", got)
	}
	select {
	case line := <-said:
		t.Errorf("before the instance has joined, it says %s", line)
	case line := <-told:
		t.Errorf("before the instance has joined, the service manager is told %q", line)
	case code := <-ended:
		t.Fatalf("it has ended with %d: %s", code, log)
	default:
	}
	store.Run()
	if line := <-said; !strings.Contains(line, at) {
		t.Errorf("it says %s", line)
	}
	if got := <-told; !strings.Contains(got, "READY=1\nSTATUS=serving 1 server on "+at) {
		t.Errorf("the service manager is told %q", got)
	}
	if got := readyz(); got != http.StatusOK {
		t.Errorf("/readyz answers %d", got)
	}
	go func() { // what else is said
		for {
			if _, more := <-said; !more {
				return
			}
		}
	}()
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, log)
	}
}
