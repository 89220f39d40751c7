package calls

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// FuzzPublished: whatever a catalogue says, the tools that it gives can be listed,
// and their requests go below the API's own address.
func FuzzPublished(f *testing.F) {
	f.Add(`[{"name":"a","request":"POST /x/{b}{?c}","body":{"d":"{c}"},"headers":{"X-E":"{b}"},"inputSchema":{"properties":{"b":{"type":"string"},"c":{}},"required":["b"],"additionalProperties":true}}]`)
	f.Add(`[{"name":"a","request":"GET https://flows.example.com/v1{?q*}","inputSchema":{"properties":{"q":{"type":"array"}}}}]`)
	f.Add(`[{"name":"one","request":"GET /one"},{"name":"two","request":"GET /two"}]`)
	s := tools.Settings{API: wire.Options{Name: "flows", BaseURL: "https://flows.example.com/v1/"}, Mode: tools.ModeTools}
	none, err := s.Make(nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	schemas := validate.NewCache(1)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := s.Make(nil, []byte(text))
		if err != nil {
			return
		}
		page, _ := m.Page("")
		if !gjson.ValidBytes(page) {
			t.Fatalf("%q is listed as %s", text, page)
		}
		source, err := s.Source(none, schemas, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		for _, one := range m.Tools {
			p, err := source.Plan(callOf(one, []byte(`{"a":"x/..","b":"\u2028?#","c":["&"],"q":["=",1.0]}`)))
			if err != nil {
				continue // these are not its arguments
			}
			if request := p.String(); !strings.Contains(request, " https://flows.example.com/v1/") {
				t.Errorf("%q makes %s", text, request)
			}
		}
	})
}
