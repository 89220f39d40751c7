package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// manyServers returns a file with n servers.
func manyServers(n int) string {
	var b strings.Builder
	b.WriteString("servers:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: { stdio: { command: x } }\n", i)
	}
	return b.String()
}

// BenchmarkLoad: the time for one server is the same, however many there are.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 4000, 16_000, 32_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "bridge.yaml")
			if err := os.WriteFile(file, []byte(manyServers(n)), 0o600); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := Load(file, none); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/server")
		})
	}
}

// The memory for one server is the same, however many there are.
func TestManyServers(t *testing.T) {
	scaletest.Unraced(t)
	taken := func(n int) uint64 {
		text := []byte(manyServers(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := Parse("bridge.yaml", text, none)
		runtime.ReadMemStats(&after)
		if err != nil || len(c.Servers) != n {
			t.Fatalf("%d servers: %v", n, err)
		}
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	taken(10) // what is made once
	if few, many := taken(500), taken(8000); many > few*3/2 {
		t.Errorf("of 500 servers each takes %d bytes, of 8000 %d", few, many)
	}
}
