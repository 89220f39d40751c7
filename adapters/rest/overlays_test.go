package rest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Overlays change the document, in order, and so the tools.
func TestOverlays(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	c := api.pets()
	c.Overlays = []string{
		file(t, "overlay: 1.0.0\nactions:\n- target: $.paths.*[?@.operationId == 'listPets']\n  update: { operationId: everyPet, summary: All of them, parameters: [{ name: extra, in: query, schema: { $ref: '#/components/schemas/Extra' } }] }\n- target: $.nothing\n  remove: true\n"),
		file(t, "overlay: 1.0.0\nactions:\n- target: $.paths.*.delete\n  remove: true\n- target: $\n  update: { components: { schemas: { Extra: { type: integer } } } }\n"),
	}
	report, err := c.Inspect(t.Context(), "pets", Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	for _, w := range report.Warnings {
		told += w.String() + "\n"
	}
	if !strings.Contains(told, "api.yaml:5: target $.nothing selects nothing\n") {
		t.Errorf("warnings:\n%s", told)
	}
	up := connect(t, adapter(t, c, Options{}), nil)
	if got := names(t, up); !strings.HasPrefix(got, "everyPet addPet getPet ") || strings.Contains(got, "delete") {
		t.Errorf("tools = %s", got)
	}
	call(t, up, "everyPet", `{"extra":7}`)
	if got := api.last(t); !strings.HasPrefix(got, "GET /pets?extra=7") {
		t.Errorf("the API gets %s", got)
	}
}

// Faults of an overlay name its file and line, even for a document at a URL.
func TestOverlayFaults(t *testing.T) {
	for _, openapi := range []string{"testdata/pets.yaml", "https://api.example.com/openapi.json"} {
		for _, test := range []struct{ path, want string }{
			{file(t, "overlay: 1.0.0\nactions:\n- target: $.paths[\n  remove: true\n"), "api.yaml:3: target $.paths[: "},
			{filepath.Join(t.TempDir(), "none.yaml"), "overlays: none.yaml: no such file or directory"},
			{t.TempDir(), "is a directory"},
		} {
			c := Config{OpenAPI: openapi, BaseURL: "https://api.example.com", Overlays: []string{test.path}}
			if _, err := c.Inspect(t.Context(), "pets", Options{}); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), os.TempDir()) {
				t.Errorf("%s: error %v, want %s", openapi, err, test.want)
			}
		}
	}
}
