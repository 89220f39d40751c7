package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// What the service manager is told, and in which order (O-056).
func TestNotifier(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux only")
	}
	for _, address := range []string{filepath.Join(t.TempDir(), "s"), "@mcp-bridge-test-" + strings.ReplaceAll(filepath.Base(t.TempDir()), "/", "")} {
		at := &net.UnixAddr{Name: strings.Replace(address, "@", "\x00", 1), Net: "unixgram"}
		l, err := net.ListenUnixgram("unixgram", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		t.Setenv("NOTIFY_SOCKET", address)
		n := FromEnvironment()
		if FromEnvironment() != nil {
			t.Error("a child would be told of the socket")
		}
		for _, step := range []struct {
			tell func() error
			want []string
		}{
			{func() error { return n.Ready("serving 2 servers\non :80") }, []string{"READY=1", "STATUS=serving 2 servers on :80"}},
			{func() error { return n.Starting("waits\nfor the store", 40*time.Second) }, []string{"STATUS=waits for the store", "EXTEND_TIMEOUT_USEC=40000000"}},
			{n.Reloading, []string{"RELOADING=1", "MONOTONIC_USEC=", "STATUS=reading"}},
			{n.Stopping, []string{"STOPPING=1"}},
		} {
			if err := step.tell(); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4096)
			k, err := l.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range step.want {
				if !strings.Contains("\n"+string(b[:k]), "\n"+want) {
					t.Errorf("at %s: told %q, want %q", address, b[:k], want)
				}
			}
		}
	}
}

// Nobody is told where nobody asks, and one who does not listen is an error, not a wait.
func TestNobody(t *testing.T) {
	var none *Notifier
	if err := none.Ready(""); err != nil {
		t.Error(err)
	}
	if New("") != nil {
		t.Error("the empty address is one")
	}
	if err := New(filepath.Join(t.TempDir(), "none")).Stopping(); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}

// Who listens and does not read is not waited for.
func TestFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux only")
	}
	folder, err := os.MkdirTemp("", "s") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	address := filepath.Join(folder, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for err == nil {
		err = New(address).Ready("serving")
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}
