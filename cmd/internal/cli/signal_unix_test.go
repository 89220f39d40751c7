//go:build unix

package cli

import (
	"bufio"
	"context"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// SIGHUP does not end a bridge that serves: the log says what it does.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("the tests were started to ignore SIGHUP, as by nohup, and so would be the bridge")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	log, stderr := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"run", "--port", "0", "--json", "--", "cat"}, stdout, stderr)
		stderr.Close()
	}()
	began := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(out).ReadString('\n') // the addresses
		close(began)
	}()
	told := false
	go func() {
		<-began
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGHUP)
	}()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "SIGHUP is ignored") {
			told = true
			stop()
		}
	}
	if code := <-ended; code != 0 || !told {
		t.Errorf("exit code %d, told of SIGHUP: %t", code, told)
	}
}
