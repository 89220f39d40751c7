package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// crew is what workers and fronts ask of an instance.
type crew struct {
	asked chan string   // to leave these instances
	left  chan struct{} // Leave waits until it is closed

	mu     sync.Mutex // guards the rest
	handed []queue.Grant
	lanes  []SlotClaim
}

func (c *crew) Leave(ctx context.Context, instance string) error {
	c.asked <- instance
	<-c.left
	return nil
}

func (c *crew) AcceptGrant(id string, g queue.Grant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handed = append(c.handed, g)
	switch id {
	case "good":
		return nil
	case "one way":
		return queue.ErrUnreached
	}
	return queue.ErrOver
}

func (c *crew) ClaimSlot(grant, front string, epoch int64) error {
	if grant != "good" || front != "BBBBBBB" || epoch != 3 {
		return ErrElsewhere
	}
	return nil
}

func (c *crew) SlotFailure(grant string) error {
	if grant != "failed" {
		return nil
	}
	return &bridge.Error{Server: "files", Kind: bridge.ErrCredentials, Public: "it wants a key", After: time.Second}
}

func (c *crew) ServeTunnel(w http.ResponseWriter, r *http.Request, s SlotClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes = append(c.lanes, s)
	_, _ = io.WriteString(w, auth.Principal(r.Context()))
}

// What workers and fronts say to each other arrives as it was meant, from whom it is, and
// what is none of it is refused.
func TestWork(t *testing.T) {
	c := &crew{asked: make(chan string, 2), left: make(chan struct{})}
	p, err := New(Options{ID: "AAAAAAA", Secrets: []string{secret}, Lease: 6 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p.Join(Parts{Node: cluster.New(cluster.Options{Self: cluster.Member{ID: "AAAAAAA"}, Store: session.NewMemory(10).As("AAAAAAA"), Registry: alone{}, Peers: p, Lease: 6 * time.Second, Log: slog.New(slog.DiscardHandler)}), Workers: c})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go p.Listen(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
	m := cluster.Member{ID: "AAAAAAA", Address: l.Addr().String()}
	nobody := func(string, http.ResponseWriter, *http.Request) { t.Error("a client's request") }
	b, _ := instance(t, "BBBBBBB", []string{secret}, nobody)
	stranger, _ := instance(t, "DDDDDDD", []string{"another secret of 32 characters or more"}, nobody)
	ctx := t.Context()
	if err := b.Grant(ctx, m, "good", "the grant"); err != nil {
		t.Errorf("a request that is wanted: %v", err)
	}
	if err := b.Grant(ctx, m, "over", "the grant"); !errors.Is(err, queue.ErrOver) {
		t.Errorf("a request that is over: %v", err)
	}
	if err := b.Grant(ctx, m, "one way", "the grant"); !errors.Is(err, queue.ErrUnreached) {
		t.Errorf("a request of a front that does not reach the worker: %v", err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := cluster.Member{ID: "EEEEEEE", Address: closed.Addr().String()}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Grant(ctx, nowhere, "good", "the grant"); !errors.Is(err, queue.ErrUnreached) {
		t.Errorf("a front that is not there: %v", err)
	}
	if want := (queue.Grant{Worker: "BBBBBBB", Key: "the grant"}); len(c.handed) != 3 || c.handed[0] != want {
		t.Errorf("handed %+v", c.handed)
	}
	if err := b.ClaimSlot(ctx, m, "good", 3); err != nil {
		t.Errorf("a claim: %v", err)
	}
	if err := b.ClaimSlot(ctx, m, "good", 2); !errors.Is(err, ErrElsewhere) {
		t.Errorf("a claim with an epoch that is over: %v", err)
	}
	if err := b.SlotFailure(ctx, m, "files", "failed"); !errors.Is(err, bridge.ErrCredentials) || bridge.RetryAfter(err) != time.Second {
		t.Errorf("why: %v", err)
	}
	if err := b.SlotFailure(ctx, m, "files", "good"); err != nil {
		t.Errorf("why, of one that has not failed: %v", err)
	}
	lane := func(headers map[string]string) (int, string) {
		t.Helper()
		h := http.Header{}
		for name, value := range headers {
			h.Set(name, value)
		}
		res, err := b.post(ctx, m, "work", h, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	if status, text := lane(WorkerTunnelHeaders("alice", "good", 3)); status != http.StatusOK || text != "alice" {
		t.Errorf("a lane: %d %s", status, text)
	}
	if want := (SlotClaim{Grant: "good", Front: "BBBBBBB", Epoch: 3}); len(c.lanes) != 1 || c.lanes[0] != want {
		t.Errorf("lanes %+v", c.lanes)
	}
	for name, headers := range map[string]map[string]string{"no headers": {}, "no epoch": {principalHeader: Encode("alice"), GrantHeader: "good"}, "no principal": {principalHeader: "%", GrantHeader: "good", epochHeader: "1"}} {
		if status, text := lane(headers); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for path, body := range map[string]string{"offers/good": "garbage", "claims/good": "garbage"} {
		res, err := b.post(ctx, m, path, nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		if !b.AskLeave(ctx, m, LeaveWorker) {
			t.Error("an instance that answered has not left")
		}
	}()
	if who := <-c.asked; who != "BBBBBBB" {
		t.Errorf("asked to leave %q", who)
	}
	select {
	case <-left:
		t.Error("it did not wait for the answer")
	default:
	}
	close(c.left)
	<-left
	if b.AskLeave(ctx, nowhere, LeaveWorker) || b.AskLeave(ctx, m, "something else") {
		t.Error("an unreachable instance, or one of an older version, has left")
	}
	// (S-080)
	if err := stranger.Grant(ctx, m, "good", "x"); err == nil || errors.Is(err, queue.ErrOver) || !strings.Contains(err.Error(), "tls") && !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger's grant: %v", err)
	}
	if len(c.handed) != 3 {
		t.Error("a stranger was served")
	}
}
