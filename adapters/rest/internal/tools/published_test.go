package tools

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// The secrets of a catalogue are bounded, since each is searched in every text; repeated ones cost
// nothing.
func TestManySecrets(t *testing.T) {
	var catalogue []string
	for i := range toolset.MaxPublishedSecrets + 5 {
		catalogue = append(catalogue, fmt.Sprintf(`{"name":"own%d","request":"GET /","headers":{"X-Key":"the-secret-%d"}},{"name":"same%d","request":"GET /","headers":{"X-Key":"the-secret-0"}}`, i, i, i))
	}
	s := Settings{API: wire.Options{BaseURL: "https://flows.example.com"}}
	m, err := s.Make(nil, []byte("["+strings.Join(catalogue, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Tools) != 2*toolset.MaxPublishedSecrets+5 || len(m.Warnings) != 5 || len(s.secrets(m.Tools)) != toolset.MaxPublishedSecrets {
		t.Errorf("%d tools, %d warnings, %d secrets", len(m.Tools), len(m.Warnings), len(s.secrets(m.Tools)))
	}
	if want := `tool "own100": the catalogue has more than 100 secrets`; !strings.Contains(m.Warnings[0].String(), want) || strings.Contains(m.Warnings[0].String(), "the-secret") {
		t.Errorf("warning = %s, want %s", m.Warnings[0], want)
	}
}
