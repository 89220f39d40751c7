package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
)

// versions are the versions of Kubernetes whose schemas the objects must fit: the oldest that the chart names, and the
// newest.
var versions = [2]string{"v1.30.14", "v1.37.2"}

// need skips a test if something is missing, or fails it where that is required.
func need(t *testing.T, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if all := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ","); slices.Contains(all, name) || slices.Contains(all, "all") {
		t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE: %v", name, err)
	}
	t.Skipf("needs %s: %v", name, err)
}

// schemas are the schemas of a version of Kubernetes.
type schemas struct {
	compiler *jsonschema.Compiler
	at       map[string]string // location of an object's schema, by apiVersion/kind
}

// published reads the schemas from the source of Kubernetes, which no program can import: the Go command fetches it.
// They are made strict: an unknown field is a fault.
func published(t *testing.T, version string) *schemas {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version).Output()
	if err != nil {
		err = fmt.Errorf("go mod download: %w: %s", err, out)
	}
	need(t, "kubernetes", err)
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "api/openapi-spec/v3/*_openapi.json"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d schemas in %s, %v", len(files), module.Dir, err)
	}
	s := &schemas{jsonschema.NewCompiler(), map[string]string{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		url := "https://kubernetes.example.com/" + filepath.Base(file)
		parts, _ := doc.(map[string]any)["components"].(map[string]any)
		all, _ := parts["schemas"].(map[string]any) // lists of versions have none
		for name, one := range all {
			is := one.(map[string]any)
			if is["properties"] != nil && is["additionalProperties"] == nil {
				is["additionalProperties"] = false
			}
			kinds, _ := is["x-kubernetes-group-version-kind"].([]any)
			if len(kinds) != 1 { // types of all groups, such as DeleteOptions
				continue
			}
			of := kinds[0].(map[string]any)
			s.at[strings.TrimPrefix(fmt.Sprint(of["group"], "/", of["version"], "/", of["kind"]), "/")] = url + "#/components/schemas/" + name
		}
		if err := s.compiler.AddResource(url, doc); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// faults returns the faults of objects by the schemas, and the number of known objects. Objects that are not part of
// Kubernetes are unknown.
func (s *schemas) faults(t *testing.T, made []object) (said []string, known int) {
	t.Helper()
	for _, o := range made {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(o.text))
		if err != nil {
			t.Fatal(err)
		}
		kind := o.version + "/" + o.kind
		at := s.at[kind]
		if at == "" {
			if group, _, _ := strings.Cut(kind, "/"); !slices.Contains([]string{"monitoring.coreos.com", "gateway.networking.k8s.io", "ark.mckinsey.com"}, group) {
				said = append(said, kind+" is unknown")
			}
			continue
		}
		known++
		schema, err := s.compiler.Compile(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			said = append(said, fmt.Sprintf("%s %s: %v", o.kind, o.name, err))
		}
	}
	return said, known
}

// Kubernetes accepts every object, in the oldest version that the chart names and in the newest. Faults are detected.
func TestSchemas(t *testing.T) {
	if meta := load(t, folder).Metadata; !strings.HasPrefix(versions[0], "v"+strings.TrimSuffix(strings.TrimPrefix(meta.KubeVersion, ">="), ".0-0")) {
		t.Errorf("the chart is for %s, and the oldest version here is %s", meta.KubeVersion, versions[0])
	}
	for i, version := range versions {
		t.Run(version, func(t *testing.T) {
			s := published(t, version)
			known := 0
			check := func(name string, made []object) {
				said, n := s.faults(t, made)
				known += n
				for _, fault := range said {
					t.Errorf("%s: %s", name, fault)
				}
			}
			for _, file := range files {
				check(file, release(t, file, ""))
			}
			made, err := objects(t, load(t, example), values(t, "", ""))
			if err != nil {
				t.Fatal(err)
			}
			check("n8n", made)
			if known < 35 {
				t.Errorf("%d objects only are known", known)
			}
			for _, tc := range []struct{ template, from, to, want string }{
				{"deployment.yaml", "serviceAccountName:", "serviceAccount1:", "additional properties 'serviceAccount1' not allowed"},
				{"deployment.yaml", "      containers:", "      restartPolicy: 5\n      containers:", "got number, want string"},
				{"_helpers.tpl", "mountPath: /tmp", "readOnly: false", "missing property 'mountPath'"},
				{"service.yaml", "port: {{", "port: x{{", "got string, want integer"},
				{"hpa.yaml", "apiVersion: autoscaling/v2", "apiVersion: autoscaling/v2beta2", "autoscaling/v2beta2/HorizontalPodAutoscaler is unknown"},
				{"deployment.yaml", "      containers:", "      resources: { limits: { cpu: 1 } }\n      containers:", [2]string{"additional properties 'resources' not allowed", ""}[i]},
			} {
				made := broken(t, tc.template, tc.from, tc.to)
				said, _ := s.faults(t, made)
				if all := strings.Join(said, "\n"); tc.want == "" && all != "" || !strings.Contains(all, tc.want) {
					t.Errorf("%s with %q: said is %q, want %q", tc.template, tc.to, all, tc.want)
				}
			}
		})
	}
}

// broken renders the chart with a changed template, without checks of types.
func broken(t *testing.T, template, from, to string) (made []object) {
	t.Helper()
	c := load(t, folder)
	changed := false
	change(c, template, func(text []byte) []byte {
		now := bytes.Replace(text, []byte(from), []byte(to), 1)
		changed = !bytes.Equal(now, text)
		return now
	})
	if !changed {
		t.Fatalf("%s has no %q", template, from)
	}
	rendered, err := render(t, c, values(t, "full-values.yaml", ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range rendered {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		some, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, some...)
	}
	return made
}

// change changes the text of a template.
func change(c *v2.Chart, template string, to func([]byte) []byte) {
	for _, f := range c.Templates {
		if f.Name == "templates/"+template {
			f.Data = to(f.Data)
		}
	}
}
