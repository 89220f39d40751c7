package examples

import (
	"os/exec"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// The example adapter is a separate module, like a third party's: "go test ./..." does not include it. Packages of this
// module are compiled with the same flags, once.
func TestAdapter(t *testing.T) {
	scaletest.Integration(t)
	vet, test := []string{"vet"}, []string{"test", "-vet=off", "-timeout=30m"}
	if scaletest.Raced {
		vet, test = append(vet, "-race"), append(test, "-race")
	}
	for _, tc := range []struct {
		args []string
		mend string
	}{
		{[]string{"mod", "tidy", "-diff"}, "its go.mod and go.sum follow those of the bridge: run (cd examples/adapter && go mod tidy)"},
		{append(vet, "./..."), "mend what it names"},
		{append(test, "./..."), "see its tests with: (cd examples/adapter && go test ./...)"},
	} {
		cmd := exec.Command("go", tc.args...)
		cmd.Dir = "adapter"
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\n%s", cmd, err, said, tc.mend)
		}
	}
}
