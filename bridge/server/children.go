package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

// measureEvery is the interval between measurements of the memory of child processes.
const measureEvery = time.Minute

// totalMemory returns the memory of the container or the machine; 0 if it is unknown.
func totalMemory() int64 {
	all, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		return 0
	}
	return int64(min(all, 1<<62))
}

// watchMemory measures the memory of the child processes of servers until ctx ends. If they use half of all,
// watchMemory logs a warning and returns.
func (s *server) watchMemory(ctx context.Context, all int64, usage func() health.Used) {
	if all == 0 || usage() == nil {
		return
	}
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.g.Totals().Lanes == 0 {
			continue
		}
		if used, by := s.childMemory(usage()); used >= all/2 {
			s.log.Warn("the child processes of servers use half of the memory: share: principal has fewer of them, session_left and idle_stop end them sooner, and max_children bounds them",
				"used_mib", used>>20, "of_mib", all>>20, "servers", by)
			return
		}
	}
}

// childMemory returns the memory of child processes in bytes. by is the text of each server's share, the largest
// first.
func (s *server) childMemory(used health.Used) (sum int64, by string) {
	type share struct {
		name string
		n    int64
	}
	var all []share
	for _, name := range s.g.Servers() {
		if _, _, open, _ := s.g.Operated(name); open != nil {
			if n := open.Use(used).RSS; n > 0 {
				sum += n
				all = append(all, share{name, n})
			}
		}
	}
	slices.SortFunc(all, func(s, b share) int { return cmp.Compare(b.n, s.n) })
	var words []string
	for _, one := range all {
		words = append(words, fmt.Sprintf("%s %d MiB", one.name, one.n>>20))
	}
	return sum, strings.Join(words, ", ")
}
