package front

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// webDocument answers at once, except for hosts of slow.example.com, which never answer.
type webDocument struct{}

func (webDocument) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Hostname(), "slow.example.com") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// I-114: fetches of slow documents do not lock out other networks.
func TestSlowNetworks(t *testing.T) {
	// rig returns a function that fetches a document, and returns the result and the time it took.
	rig := func(t *testing.T) func(host, network string) (string, time.Duration) {
		d := newDocuments(webDocument{}, "documents", func(*string) time.Duration { return minLife }, slog.New(slog.DiscardHandler))
		t.Cleanup(func() {
			synctest.Wait()
			if len(d.inFlight) > 0 || len(d.running) > 0 {
				t.Errorf("%d networks and hosts are busy at the end, and %d under way", len(d.inFlight), len(d.running))
			}
		})
		return func(host, network string) (string, time.Duration) {
			began := time.Now()
			got, err := d.Get(t.Context(), "https://"+host+"/client.json", network, func() bool { return true }, func(data []byte) (*string, error) {
				text := string(data)
				return &text, nil
			})
			if err != nil {
				return err.Error(), time.Since(began)
			}
			return *got, time.Since(began)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		get := rig(t)
		var wg sync.WaitGroup
		began := time.Now()
		for n := range 2 * 20 { // two for each of twenty networks, all the time
			wg.Go(func() {
				for again := 0; time.Since(began) < 10*time.Second; again++ {
					get(fmt.Sprintf("%d-%d.slow.example.com", n, again), fmt.Sprint("network ", n/2))
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for n := range 10 {
			synctest.Wait()
			if got, after := get(fmt.Sprintf("app-%d.example.com", n), "another"); got != "{}" || after > 0 {
				t.Errorf("beside twenty networks with slow documents: %s after %v", got, after)
			}
			time.Sleep(time.Second)
		}
		wg.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		get := rig(t)
		var wg sync.WaitGroup
		took := make([]time.Duration, maxFetches)
		for n := range maxFetches {
			wg.Go(func() {
				_, took[n] = get(fmt.Sprintf("%d.slow.example.com", n), fmt.Sprint("network ", n))
			})
			synctest.Wait() // so that the first of them is the oldest
		}
		if got, _ := get("early.example.com", "another"); !strings.Contains(got, "too many") {
			t.Errorf("when none of them is slow yet: %s", got)
		}
		time.Sleep(slotPatience)
		if got, _ := get("own.example.com", "network 7"); !strings.Contains(got, "too many") {
			t.Errorf("a second document of a network, when all places are taken: %s", got)
		}
		for n := range 2 {
			if got, after := get(fmt.Sprintf("app-%d.example.com", n), "another"); got != "{}" || after > 0 {
				t.Errorf("when they are slow: %s after %v", got, after)
			}
		}
		synctest.Wait() // until its client has disconnected
		if got, after := get("0.slow.example.com", "network 0"); !strings.Contains(got, "deadline") || after != limit {
			t.Errorf("one that had to go, again: %s after %v", got, after)
		}
		wg.Wait()
		for n, after := range took {
			want := limit
			if n == 0 {
				want = slotPatience
			}
			if after != want {
				t.Errorf("document %d was fetched for %v, want %v", n, after, want)
			}
		}
	})
}
