package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// choice is a value that a schema offers for a key.
type choice struct {
	path  string // of the key, such as cluster.role
	value any
}

// values returns the choice as values of the chart.
func (c choice) values() map[string]any {
	all := map[string]any{}
	path := strings.Split(c.path, ".")
	in := all
	for _, key := range path[:len(path)-1] {
		next := map[string]any{}
		in[key] = next
		in = next
	}
	in[path[len(path)-1]] = c.value
	return all
}

// in returns the value of the choice's key in values of the chart; nil if it is missing.
func (c choice) in(all map[string]any) any {
	var at any = all
	for key := range strings.SplitSeq(c.path, ".") {
		in, _ := at.(map[string]any)
		at = in[key]
	}
	return at
}

// choices returns the values that a schema offers: each value of an enum, both of a switch, and none where null is a
// value. An unknown form of choice is an error.
func choices(path string, schema map[string]any) (found []choice, err error) {
	for _, key := range []string{"oneOf", "anyOf", "allOf", "if", "const", "$ref", "patternProperties"} {
		if schema[key] != nil {
			return nil, fmt.Errorf("%s has %s, of which this test does not know the choices", path, key)
		}
	}
	if enum, ok := schema["enum"].([]any); ok {
		for _, value := range enum {
			found = append(found, choice{path, value})
		}
	}
	types, several := schema["type"].([]any)
	if !several {
		types = []any{schema["type"]}
	}
	for _, kind := range types {
		switch kind {
		case "boolean":
			found = append(found, choice{path, true}, choice{path, false})
		case "null":
			found = append(found, choice{path, nil})
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		if in, err := choices(path+"[]", items); err != nil || len(in) > 0 {
			return nil, fmt.Errorf("%s has items with choices, which this test does not make: %v %w", path, in, err)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if inner, ok := properties[name].(map[string]any); ok { // others are refused
			in, err := choices(strings.TrimPrefix(path+"."+name, "."), inner)
			if err != nil {
				return nil, err
			}
			found = append(found, in...)
		}
	}
	return found, nil
}

// configurations are the configurations that charts render. Each is checked once.
type configurations struct{ seen map[string]bool }

// faults returns the output of mcp-bridge check for the configuration in each pod of a release, with the pod's
// variables, keys and flags.
func (k *configurations) faults(t *testing.T, made []object) (said []string) {
	t.Helper()
	maps := slices.DeleteFunc(all[core.ConfigMap](made), func(c *core.ConfigMap) bool { return c.Data["bridge.yaml"] == "" }) // one may have a dashboard
	for _, d := range all[apps.Deployment](made) {
		at := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c core.Container) bool { return c.Name == "mcp-bridge" })
		if at < 0 || len(maps) == 0 {
			continue // without the bridge, or with the user's own ConfigMap
		}
		bridge := d.Spec.Template.Spec.Containers[at]
		args := []string{"check", "--json"}
		open := slices.Contains(bridge.Args, "--insecure") // check warns of this
		if open {
			args = append(args, "--insecure")
		}
		key, err := json.Marshal([]any{maps, args, bridge.Env})
		if err != nil {
			t.Fatal(err)
		}
		if k.seen[string(key)] {
			continue
		}
		k.seen[string(key)] = true
		p := prepare(t, made, d, func(secret, key string) string {
			if key == "url" {
				return "redis://redis:6379"
			}
			return fmt.Sprintf("the-key-%s-in-%s-is-long-enough", key, secret)
		})
		if tools := filepath.Join(p.dir, "tools"); exists(tools) { // as a workflow would have written it
			if err := os.WriteFile(filepath.Join(tools, "n8n-tools.json"), []byte(catalogue), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(p.process.Path, append(args, p.local("/etc/mcp-bridge/bridge.yaml"))...)
		if err := os.Symlink(p.process.Path, filepath.Join(p.dir, "npx")); err != nil { // some images have npx
			t.Fatal(err)
		}
		c.Env = append(p.process.Env, "PATH="+p.dir)
		out, err := c.CombinedOutput()
		var verdict struct{ Warnings []string }
		if json.Unmarshal(out, &verdict); err != nil || len(verdict.Warnings) > 0 && !open {
			said = append(said, fmt.Sprintf("%s: %v: %s", d.Name, err, out))
		}
	}
	return said
}

// unread renders a changed chart for each choice that its schema offers, with each of some values. It returns the
// faults of configurations that the bridge cannot read, and the choices that render nothing.
func unread(t *testing.T, dir string, change func(*v2.Chart), bases map[string]string) (said []string) {
	t.Helper()
	changed := func() *v2.Chart {
		c := load(t, dir)
		change(c)
		return c
	}
	original := changed()
	var schema map[string]any
	if err := json.Unmarshal(original.Schema, &schema); err != nil {
		return []string{fmt.Sprintf("%s: values.schema.json, which has the choices: %v", dir, err)}
	}
	offered, err := choices("", schema)
	if err != nil {
		return []string{err.Error()}
	}
	k := &configurations{map[string]bool{}}
	rendered, refused := map[choice]bool{}, map[choice]string{}
	for name, base := range bases {
		for _, c := range offered {
			before := util.MergeTables(values(t, "", base), original.Values)
			if c.value == c.in(before) && rendered[c] {
				continue // nothing changes
			}
			what := fmt.Sprintf("%s with %s: %v", name, c.path, c.value)
			made, err := objects(t, changed(), util.MergeTables(c.values(), values(t, "", base)))
			if err != nil {
				refused[c] += fmt.Sprintf("\n%s: %v", what, err)
				continue
			}
			rendered[c] = true
			for _, fault := range k.faults(t, made) {
				said = append(said, what+": "+fault)
			}
		}
	}
	for one, why := range refused {
		if !rendered[one] {
			said = append(said, fmt.Sprintf("nothing is rendered with %s: %v, so nobody knows whether the bridge could read it:%s", one.path, one.value, why))
		}
	}
	t.Logf("%s: %d choices beside %d values make %d configurations", filepath.Base(dir), len(offered), len(bases), len(k.seen))
	if len(offered) < 5 || len(k.seen) < 5 {
		said = append(said, "that is too few")
	}
	return said
}

// valuesOf returns the published values for the chart: those of ci, and of the page about it.
func valuesOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"docs/install.md": documented(t)}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, "ci", file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(text)
	}
	return all
}

// methods are the example's values from which others follow.
var methods = map[string]string{
	"shared-volume": "",
	"api":           "mcp: { discovery: { method: api } }",
	"hooks":         "mcp: { discovery: { method: hooks } }",
	"open":          "mcp: { auth: { enabled: false }, insecure: true }",
}

// The bridge can read each configuration that a chart renders, for all choices (O-076).
func TestConfigurations(t *testing.T) {
	for _, fault := range unread(t, folder, func(*v2.Chart) {}, valuesOf(t)) {
		t.Error(fault)
	}
	examples, err := filepath.Glob("../../helm/examples/*")
	if err != nil || !slices.Contains(examples, example) {
		t.Fatalf("the examples are %v, %v", examples, err)
	}
	for _, dir := range examples {
		for _, fault := range unread(t, dir, func(*v2.Chart) {}, methods) {
			t.Error(fault)
		}
	}
}

// A configuration that the bridge cannot read is detected, and a choice that no template knows.
func TestConfigurationsBroken(t *testing.T) {
	for _, tc := range []struct{ file, from, to, want string }{
		{"_helpers.tpl", `(dict "url" $d.url) "refresh" $d.refreshInterval`, `(dict "url" $d.url "refresh" $d.refreshInterval)`, "the keys here are file, headers"},
		{"values.schema.json", `"shared-volume",`, `"shared-volume", "by-mail",`, "method: by-mail, so nobody knows"},
		{"values.schema.json", `"enum": [`, `"oneOf": [`, "does not know the choices"},
	} {
		changed := false
		said := strings.Join(unread(t, example, func(c *v2.Chart) {
			exchange := func(text []byte) []byte {
				now := bytes.ReplaceAll(text, []byte(tc.from), []byte(tc.to))
				changed = changed || !bytes.Equal(now, text)
				return now
			}
			change(c, tc.file, exchange)
			if tc.file == "values.schema.json" {
				c.Schema = exchange(c.Schema)
			}
		}, map[string]string{"api": methods["api"]}), "\n")
		if !changed || !strings.Contains(said, tc.want) {
			t.Errorf("%s with %s: said is %q, want %q", tc.file, tc.to, said, tc.want)
		}
	}
}
