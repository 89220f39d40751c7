package integration

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestProgramGone deletes the program of a server. Clients that try in vain to
// get a process of it take nothing away from those that have one.
func TestProgramGone(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	program := filepath.Join(t.TempDir(), "server")
	if err := os.Link(fakeProgram(t), program); err != nil {
		t.Skip("no hard links here:", err)
	}
	p := startBridge(t, nil, program)
	var good []*rawClient
	for range 3 {
		good = append(good, mustOpenRaw(t, p.base))
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	left, n := 0, 0
	for ; n < 30; n++ {
		r, err := (&rawClient{url: p.base + "/mcp"}).post(t.Context(), []byte(rawInitialize))
		if err != nil || r.answer.Error == nil {
			t.Fatalf("initialize: %v %v", r, err)
		}
		if strings.Contains(r.String(), "it is down: ") {
			left++
		}
		var calls sync.WaitGroup
		for _, r := range good {
			calls.Go(func() { r.must(t, "echo", map[string]any{"message": "a"}) })
		}
		calls.Wait()
	}
	if left < n-5 {
		t.Errorf("%d of %d openings were refused at once", left, n)
	}
	if err := os.Link(fakeProgram(t), program); err != nil {
		t.Fatal(err)
	}
	if _, ok := eventually(func() (error, bool) {
		r, err := openRaw(t.Context(), p.base)
		if err == nil {
			err = r.end(t.Context())
		}
		return err, err == nil
	}); !ok {
		t.Error("the program is back, and no session can be opened")
	}
}

// TestSharedProcessKilled kills the process that everybody shares again and
// again. A client that calls all the time loses what is under way, and no more.
func TestSharedProcessKilled(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	for _, share := range []string{"all", "principal"} {
		p := startBridge(t, []string{"--share", share}, fakeProgram(t))
		bad, good := mustOpenRaw(t, p.base), mustOpenRaw(t, p.base)
		const kills = 10
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range kills {
				r, err := bad.tool(t.Context(), "crash", nil)
				if err != nil || r.answer.Error == nil {
					t.Errorf("crash: %v %v", r, err)
				}
				for range 20 { // then it works for a while
					if r, err := bad.tool(t.Context(), "sleep", map[string]any{"ms": 10}); err != nil {
						t.Errorf("sleep: %v %v", r, err)
					}
				}
			}
		}()
		ok, lost := 0, 0
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			r, err := good.tool(t.Context(), "sleep", map[string]any{"ms": 1})
			switch {
			case err != nil:
				t.Fatal(err)
			case r.answer.Error == nil:
				ok++
			case strings.Contains(r.String(), "its process has ended"):
				lost++
			default:
				t.Errorf("a call was refused: %v", r)
			}
		}
		if lost > kills || ok < 100 {
			t.Errorf("share %s: %d calls had an answer, %d were lost by %d crashes", share, ok, lost, kills)
		}
	}
}
