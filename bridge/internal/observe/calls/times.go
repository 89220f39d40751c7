package calls

import (
	"math"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// These bound the calls of a server whose durations count.
const (
	maxTimed = 256
	timedFor = 15 * time.Minute
)

// timedMethods are the methods whose durations count.
var timedMethods = []string{"tools/call", "prompts/get", "resources/read"}

// times holds the durations of a server's last calls.
type times struct {
	last logs.Ring[timed]
	// The last result.
	of      Times
	counted time.Time
	fresh   bool // no call has ended since
}

// Times holds the durations, in milliseconds, within which 50, 95 and 99 of 100 calls were answered.
type Times struct{ P50, P95, P99 float64 }

// timed is one call.
type timed struct {
	ended time.Time
	took  float64 // in milliseconds
}

// took stores the duration of an answered call. Other methods say little about a server. The bridge answers
// lists itself, initialize may start a program, and subscriptions last. The caller holds c.mu.
func (c *Calls) took(r *Row, ended time.Time, outcome bridge.Outcome) {
	if r.Server == "" || outcome != bridge.Answered && outcome != bridge.ToolFailed || !slices.Contains(timedMethods, r.Method) {
		return
	}
	of := c.times[r.Server]
	if of == nil {
		if c.times == nil || len(c.times) >= maxServers {
			c.times = map[string]*times{}
		}
		of = &times{last: logs.NewRing[timed](maxTimed)}
		c.times[r.Server] = of
	}
	of.last.Add(timed{ended, *r.Took})
	of.fresh = false
}

// recount is the longest age of a result without further calls.
const recount = 10 * time.Second

// Times returns the durations of a server's last calls. ok is false if none is known, because there are no observers or
// no calls.
func (c *Calls) Times(server string) (t Times, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.times[server]
	if s == nil {
		return Times{}, false
	}
	now := time.Now()
	if !s.fresh || now.Sub(s.counted) >= recount {
		var all []float64
		s.last.Newest(func(t timed) bool {
			if now.Sub(t.ended) > timedFor {
				return false
			}
			all = append(all, t.took)
			return true
		})
		s.counted, s.fresh, s.of = now, true, Times{-1, -1, -1}
		if len(all) > 0 {
			slices.Sort(all)
			s.of = Times{quantile(all, 0.5), quantile(all, 0.95), quantile(all, 0.99)}
		}
	}
	return s.of, s.of.P50 >= 0
}

// quantile returns the smallest of the sorted values that this part of them does not exceed.
func quantile(sorted []float64, part float64) float64 {
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}
