package bridge_test

import (
	"cmp"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// A package compiles the methods of each generic type that it can reach from a type that it names: through fields,
// and through the signatures of methods, also of unexported ones. An interface ends that way. Without any, most
// of the time to compile this module went into functions of others, again in each package.
func TestInstances(t *testing.T) {
	scaletest.Large(t)
	most := map[string]int{ // in place of 700
		"bridge/server":                    1000, // reaches all of the bridge, once
		"cmd/internal/meters":              1900, // OpenTelemetry's SDK
		"internal/cluster/redis":           1900, // go-redis
		"internal/cluster/redis/redistest": 1900,
	}
	out, err := exec.Command("go", "list", "-export", fmt.Sprintf("-race=%t", scaletest.Raced), "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		p := strings.Fields(line)
		symbols, err := exec.Command("go", "tool", "nm", p[1]).Output()
		if err != nil {
			t.Fatalf("%s: %v", p[0], err)
		}
		foreign, limit := 0, cmp.Or(most[strings.TrimPrefix(p[0], module+"/")], 700)
		for symbol := range strings.Lines(string(symbols)) {
			_, name, function := strings.Cut(symbol, " T ")
			if function && !strings.HasPrefix(name, p[0]+".") && !strings.HasPrefix(name, "main.") {
				foreign++
			}
		}
		if foreign > limit {
			t.Errorf("%s compiles %d functions of other packages, want at most %d", p[0], foreign, limit)
		}
	}
}
