package examples

import (
	"bufio"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// shelter starts the API of the petstore until the test ends, and returns its address.
func shelter(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(program(t, "./examples/petstore"), "-listen", "127.0.0.1:0")
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(strings.TrimSpace(line), "the pets are at ")
	if !strings.HasPrefix(address, "http://") {
		t.Fatalf("the API says %q, want its address", line)
	}
	return address
}

// The tools of the petstore do what their descriptions promise.
func TestPetstore(t *testing.T) {
	c := loadWith(t, "petstore/bridge.yaml", map[string]string{"PETS_URL": shelter(t)})
	base := serve(t, c)
	for what, transport := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: base + "/pets/mcp"},
		"HTTP+SSE":        &mcp.SSEClientTransport{Endpoint: base + "/pets/sse"},
	} {
		session := open(t, transport)
		var names []string
		for name := range list(t, session) {
			names = append(names, name)
		}
		slices.Sort(names)
		if want := []string{"addPet", "find_pets", "getPet", "rename_pet"}; !slices.Equal(names, want) {
			t.Errorf("%s: tools %q, want %q", what, names, want)
		}
		for _, step := range []struct {
			tool string
			args map[string]any
			want string // in the text, or in the error
		}{
			{"find_pets", map[string]any{"kind": "dog"}, `"id":2`},
			{"find_pets", map[string]any{"kind": "fish"}, "cat"}, // the message lists the allowed values
			{"addPet", map[string]any{"body": map[string]any{"name": "Minka", "kind": "cat"}}, `"name":"Minka"`},
			{"rename_pet", map[string]any{"id": 2, "name": "T. Rex"}, `"name":"T. Rex"`},
			{"getPet", map[string]any{"id": "2"}, `"name":"T. Rex"`},
			{"getPet", map[string]any{"id": 99}, "404 Not Found from GET /pets/99\n"},
			{"rename_pet", map[string]any{"id": 2, "name": "Rex"}, `"name":"Rex"`},
		} {
			r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: step.tool, Arguments: step.args})
			if err != nil {
				t.Fatalf("%s: %s: %v", what, step.tool, err)
			}
			if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, step.want) {
				t.Errorf("%s: %s %v returns %q, want %q in it", what, step.tool, step.args, text, step.want)
			}
		}
	}
}
