package chart

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// n8n renders the example with more values.
func n8n(t *testing.T, more string) []object {
	t.Helper()
	made, err := objects(t, load(t, example), values(t, "", more))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// The example renders objects that fit each other, and admits ARK's controller only (O-079).
func TestExample(t *testing.T) {
	for _, method := range []string{"shared-volume", "api", "hooks"} {
		made := n8n(t, "mcp: { discovery: { method: "+method+" } }")
		for _, fault := range faults(made) {
			t.Errorf("%s: %s", method, fault)
		}
		policies := all[networking.NetworkPolicy](made)
		if len(policies) != 1 || len(policies[0].Spec.Ingress[0].From) != 1 {
			t.Fatalf("%s: the policies are %+v", method, policies)
		}
		if from := policies[0].Spec.Ingress[0].From[0]; from.NamespaceSelector == nil || from.PodSelector == nil {
			t.Errorf("%s: it is not one pod in one namespace that may call: %+v", method, from)
		}
		agents, queries, servers := all[arkAgent](made), all[arkQuery](made), all[arkServer](made)
		if len(agents) != 1 || len(queries) != 1 || len(servers) != 1 || queries[0].Spec.Target.Name != agents[0].Metadata.Name || agents[0].Spec.Tools[0].Name != servers[0].Metadata.Name+"-calculate" {
			t.Errorf("%s: ARK gets %+v, %+v and %+v", method, servers, agents, queries)
		}
	}
	// n8n 2 writes only where this variable says.
	const folder = "N8N_RESTRICT_FILE_ACCESS_TO"
	for more, want := range map[string]string{
		"":                                      "/tmp/tools",
		"mcp: { discovery: { method: hooks } }": "",
		"mcp: { enabled: false }":               "",
		"n8n: { env: [{ name: " + folder + ", value: /tmp/tools;/data }] }": "/tmp/tools;/data",
	} {
		got := ""
		for _, d := range all[apps.Deployment](n8n(t, more)) {
			for _, v := range d.Spec.Template.Spec.Containers[0].Env {
				if v.Name == folder {
					got += v.Value
				}
			}
		}
		if got != want {
			t.Errorf("with %q, %s is %q, want %q", more, folder, got, want)
		}
	}
	// The header for webhooks that want a key, as the README has it.
	rendered := fmt.Sprint(all[core.ConfigMap](n8n(t, "mcp: { config: { servers: { n8n-tools: { rest: { headers: { X-Webhook-Key: k } } } } } }"))[0].Data)
	if !strings.Contains(rendered, "X-Webhook-Key: k") || !strings.Contains(rendered, "base_url: http://localhost:5678") {
		t.Errorf("a header beside the rest: %s", rendered)
	}
	if made := n8n(t, "mcp: { enabled: false }"); len(all[core.ConfigMap](made)) != 0 || len(all[core.Service](made)) != 1 {
		t.Errorf("without the bridge there are %d objects of it", len(all[core.ConfigMap](made)))
	}
	for more, want := range map[string]string{
		"mcp: { discovery: { method: guessing } }":           `one of 'shared-volume', 'api', 'hooks'`,
		"mcp: { auth: { enabled: false } }":                  "everybody who reaches the pod",
		`mcp: { auth: { enabled: true, secretName: null } }`: "auth.secretName is missing",
	} {
		if _, err := objects(t, load(t, example), values(t, "", more)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, want %q", more, err, want)
		}
	}
}

// Each way of discovery has a workflow for n8n that puts the catalogue where the bridge expects it.
// TestN8nCatalogue in examples runs what makes it.
func TestExampleWorkflows(t *testing.T) {
	for method, place := range map[string]string{
		"shared-volume": "/tmp/tools/n8n-tools.json", "api": "mcp-catalog", "hooks": "http://localhost:8080/hooks/n8n-tools",
	} {
		text, err := os.ReadFile(filepath.Join(example, "workflows", method+".json"))
		if err != nil {
			t.Fatal(err)
		}
		type node struct {
			ID, Name, Type string
			TypeVersion    float64
			Position       []int
			Parameters     map[string]any
		}
		var flow struct {
			Name        string
			Nodes       []node
			Connections map[string]map[string][][]struct{ Node string }
		}
		if err := json.Unmarshal(text, &flow); err != nil || flow.Name == "" || len(flow.Nodes) < 4 {
			t.Fatalf("%s: %v, %+v", method, err, flow)
		}
		// They are one line of nodes, from the trigger to the last one.
		found := false
		for i, n := range flow.Nodes {
			if n.ID == "" || n.TypeVersion == 0 || len(n.Position) != 2 || !strings.HasPrefix(n.Type, "n8n-nodes-base.") {
				t.Errorf("%s: the node %+v", method, n)
			}
			if next := flow.Connections[n.Name]["main"]; i+1 < len(flow.Nodes) && (len(next) != 1 || len(next[0]) != 1 || next[0][0].Node != flow.Nodes[i+1].Name) {
				t.Errorf("%s: %s leads to %+v", method, n.Name, next)
			}
			for _, key := range []string{"fileName", "path", "url"} {
				found = found || n.Parameters[key] == place
			}
		}
		if !found {
			t.Errorf("%s: no node has %s", method, place)
		}
		rendered := fmt.Sprint(all[core.ConfigMap](n8n(t, "mcp: { discovery: { method: "+method+" } }"))[0].Data)
		if want := map[string]string{"hooks": "webhook: true"}[method]; !strings.Contains(rendered, cmp.Or(want, place)) || method == "hooks" && !strings.Contains(rendered, ":8080") {
			t.Errorf("%s: the bridge looks elsewhere: %s", method, rendered)
		}
	}
}

// workflows starts the engine of examples/workflow-tools instead of n8n, and returns its address.
func workflows(t *testing.T) string {
	t.Helper()
	c := exec.Command(filepath.Join(programs, "workflow-tools"), "-listen", "127.0.0.1:0", "-announce", "")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it serves until killed
		_ = c.Wait()         // the error says that it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := strings.Cut(strings.TrimSpace(line), "the workflows are at ")
	return at
}

// catalogue is the catalogue that a workflow writes or posts.
const catalogue = `{"tools": [{"name": "calculate", "description": "Computes.", "request": "POST /webhook/calculate", "headers": {"X-Engine-Key": "engine-key"},
	"inputSchema": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}]}`

// The pod of the example works: the tools come through the shared volume, or through a hook.
func TestExamplePod(t *testing.T) {
	for _, method := range []string{"shared-volume", "hooks"} {
		t.Run(method, func(t *testing.T) {
			made := n8n(t, fmt.Sprintf("mcp: { port: %d, discovery: { method: %s } }", freePort(t), method))
			p := start(t, made, map[string]string{"mcp-auth/token": key, "mcp-auth/hooks": "the-secret-of-the-hooks"}, "http://localhost:5678", workflows(t))
			if method == "hooks" {
				r, err := http.NewRequest(http.MethodPost, p.base+"/hooks/n8n-tools", strings.NewReader(catalogue))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer the-secret-of-the-hooks")
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if res.Body.Close(); res.StatusCode != 200 {
					t.Errorf("the hook: %d", res.StatusCode)
				}
			} else {
				file := filepath.Join(p.dir, "tools", "n8n-tools.json")
				if err := os.WriteFile(file+".new", []byte(catalogue), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
			}
			session := p.session(key)
			p.until("the workflow is a tool", func() bool {
				_, _, body := p.post(key, "", session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				return strings.Contains(body, `"calculate"`)
			})
			if status, _, body := p.post(key, "", session, call(3, "calculate", `{"expression":"144/12"}`)); status != 200 || !strings.Contains(body, "12") || strings.Contains(body, `"isError":true`) {
				t.Errorf("calculate: %d %s", status, body)
			}
		})
	}
}
