package peer

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hearing is a listener whose connections can be made deaf.
type hearing struct {
	net.Listener
	mu  sync.Mutex // guards all
	all []*net.TCPConn
}

func (h *hearing) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, c.(*net.TCPConn))
	}
	return c, err
}

// deafen has the kernel drop all that comes over the connections that there are, as a network
// does that has gone silent: nothing is acknowledged, and nothing is broken.
func (h *hearing) deafen(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	for _, c := range h.all {
		raw, err := c.SyscallConn()
		if err != nil {
			continue // it has ended
		}
		if failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
		}); failed == nil && err != nil {
			t.Fatal(err)
		}
	}
}

// The network between two instances goes silent. A call that waits for its answer, and one
// that comes after that over a connection that was kept, end within three leases and not with
// the patience of the kernel (S-020); and so does what the first one has begun at its owner.
func TestSilentNetwork(t *testing.T) {
	const lease = time.Second
	begun, ended := make(chan struct{}), make(chan struct{})
	l, err := Listen(t.Context(), "127.0.0.1:0", lease)
	if err != nil {
		t.Fatal(err)
	}
	ears := &hearing{Listener: l}
	_, m := instanceAt(t, ears, "AAAAAAA", lease, []string{secret}, func(server string, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if server == "waits" {
			close(begun)
			<-r.Context().Done()
			close(ended)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	p, _ := instanceAt(t, nil, "BBBBBBB", lease, []string{secret}, nil)
	call := func(server string) string {
		how, text := send(p, m, "POST", server)
		if how != answered {
			t.Errorf("%s: not answered, but %v", server, how)
		}
		return text
	}
	answers := make(chan string, 2)
	go func() { answers <- call("waits") }()
	<-begun
	call("quick") // over another connection, which is kept
	ears.deafen(t)
	go func() { answers <- call("quick") }()
	for range 2 {
		if got := <-answers; !strings.Contains(got, `"upstream_lost"`) {
			t.Errorf("answered %s", got)
		}
	}
	<-ended // the owner knows that its front has gone
}
