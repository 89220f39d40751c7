package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/programtest"
)

// n8nAnswers are answers of n8n's API: of n8n 1, whose workflows have one version, and of n8n 2.
const n8nAnswers = `[{ json: { data: [
	{ id: 'a1', name: 'Add two numbers!', nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'Adds.', parameters: { path: 'add' } }, { type: 'n8n-nodes-base.code' }] },
	{ id: 'a2', name: 'Calculate', nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: '{"name":"calculate","inputSchema":{"type":"object"}}', parameters: { httpMethod: 'POST', path: '/calc' } }] },
	{ id: 'a3', name: 'Not for others', nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', parameters: { path: 'own' } }, { type: 'n8n-nodes-base.webhook', notes: 'Off.', disabled: true, parameters: { path: 'off' } }] }
], nextCursor: 'x' } }, { json: { data: [
	{ id: 'b1', name: 'Drafted', nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'The draft.', parameters: { path: 'draft' } }],
		activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'What runs.', parameters: { path: 'runs' } }] } },
	{ id: 'b2', name: 'Order', activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'An order.', webhookId: '0d5b-11', parameters: { path: 'orders/:id/:part' } }] } },
	{ id: 'b3', name: 'Typed', activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: '{"inputSchema":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}', webhookId: '0d5b-12', parameters: { path: 'typed/:id' } }] } },
	{ id: 'b6', name: 'Described', activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: '{"inputSchema":{"type":"object","properties":{"id":{"type":"integer"},"day":{"type":"string"}},"required":["day"]}}', webhookId: '0d5b-13', parameters: { path: 'described/:id?' } }] } },
	{ id: 'b7', name: 'Never saved', activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'Has no address.', parameters: { path: 'orders/:id' } }] } },
	{ id: 'b4', name: 'Both', activeVersion: { nodes: [
		{ type: 'n8n-nodes-base.webhook', name: 'Read', notes: 'Reads.', parameters: { path: 'both' } },
		{ type: 'n8n-nodes-base.webhook', name: '書く', notes: 'Writes.', parameters: { httpMethod: ['GET', 'POST'], path: 'both' } }] } },
	{ id: 'b5', name: '計算', activeVersion: { nodes: [{ type: 'n8n-nodes-base.webhook', name: 'Webhook', notes: 'Counts.', parameters: { httpMethod: ['PUT', 'DELETE'], path: 'count' } }] } }
], nextCursor: null } }]`

// n8nCatalogue is the catalogue of these answers, a tool a line.
const n8nCatalogue = `{"name":"add_two_numbers","title":"Add two numbers!","description":"Adds.","inputSchema":{"type":"object","additionalProperties":true},"request":"GET /webhook/add"}
{"name":"calculate","title":"Calculate","inputSchema":{"type":"object"},"request":"POST /webhook/calc"}
{"name":"drafted","title":"Drafted","description":"What runs.","inputSchema":{"type":"object","additionalProperties":true},"request":"GET /webhook/runs"}
{"name":"order","title":"Order","description":"An order.","inputSchema":{"type":"object","additionalProperties":true,"properties":{"id":{"type":"string"},"part":{"type":"string"}},"required":["id","part"]},"request":"GET /webhook/0d5b-11/orders/{id}/{part}"}
{"name":"typed","title":"Typed","inputSchema":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]},"request":"GET /webhook/0d5b-12/typed/{id}"}
{"name":"described","title":"Described","inputSchema":{"type":"object","properties":{"id":{"type":"integer"},"day":{"type":"string"}},"required":["day","id"]},"request":"GET /webhook/0d5b-13/described/{id}"}
{"name":"both_read","title":"Both","description":"Reads.","inputSchema":{"type":"object","additionalProperties":true},"request":"GET /webhook/both"}
{"name":"both_2","title":"Both","description":"Writes.","inputSchema":{"type":"object","additionalProperties":true},"request":"POST /webhook/both"}
{"name":"workflow_b5","title":"計算","description":"Counts.","inputSchema":{"type":"object","additionalProperties":true},"request":"PUT /webhook/count"}`

// The three workflows for n8n make the same catalogue of its workflows, and the bridge can use every
// tool of it.
func TestN8nCatalogue(t *testing.T) {
	node := programtest.Need(t, "node")
	files, err := filepath.Glob("../deploy/helm/examples/n8n/workflows/*.json")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	first := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var flow struct {
			Nodes []struct{ Parameters struct{ JSCode string } }
		}
		if err := json.Unmarshal(text, &flow); err != nil {
			t.Fatal(err)
		}
		code := ""
		for _, n := range flow.Nodes {
			code += n.Parameters.JSCode
		}
		if first == "" {
			first = code
		}
		if code == "" || code != first {
			t.Errorf("%s makes the catalogue in another way than %s", file, files[0])
		}
	}
	out, err := exec.CommandContext(t.Context(), node, "-e", "const $input = { all: () => ("+n8nAnswers+") }; console.log(JSON.stringify((() => {"+first+"})()))").CombinedOutput()
	var made []struct{ JSON json.RawMessage }
	if err != nil || json.Unmarshal(out, &made) != nil || len(made) != 1 {
		t.Fatalf("%s\n%v", out, err)
	}
	if got, want := string(made[0].JSON), `{"tools":[`+strings.ReplaceAll(n8nCatalogue, "\n", ",")+`]}`; got != want {
		t.Errorf("the catalogue is\n%s\nwant\n%s", strings.ReplaceAll(got, "},{\"name", "}\n{\"name"), n8nCatalogue)
	}
	catalogue := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(catalogue, made[0].JSON, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("bridge.yaml", []byte("servers: { flows: { rest: { base_url: \"http://localhost:5678\", catalog: { file: \""+filepath.ToSlash(catalogue)+"\" } } } }"), nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := c.Servers[0].Rest.Inspect(t.Context(), "flows", server.RestOptions(&c.Servers[0], int(c.MaxMessage), nil))
	if err != nil || report.Tools != 9 || len(report.Warnings) > 0 {
		t.Errorf("the bridge makes %+v of it: %v", report, err)
	}
}
