package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/programtest"
)

// workflow is the part of a GitHub workflow that the tests read.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Uses        string
		Needs       string
		Permissions map[string]string
		Steps       []struct {
			Uses string
			Run  string
			With map[string]any
		}
	}
}

func readWorkflow(t *testing.T, name string) (w workflow) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".github", "workflows", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// Workflows run nothing but scripts of this repository, and a release only after the checks.
func TestWorkflows(t *testing.T) {
	usage, _ := publish(t, "")
	called := map[string]bool{}
	for _, name := range []string{"ci.yml", "nightly.yml", "release.yml"} {
		w := readWorkflow(t, name)
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s gives all jobs %v, want to read contents only", name, w.Permissions)
		}
		for job, j := range w.Jobs {
			for _, s := range j.Steps {
				switch script, command, _ := strings.Cut(strings.TrimPrefix(s.Run, "mkdir -p bin && "), " "); {
				case s.Run == "":
					if !strings.Contains(s.Uses, "@") {
						t.Errorf("%s: %s uses %q without a version", name, job, s.Uses)
					}
				case script == "deploy/publish.sh":
					command, _, _ = strings.Cut(command, " ")
					called[command] = true
					if !strings.Contains(usage, "deploy/publish.sh "+command+" ") {
						t.Errorf("%s calls publish.sh %s, which it does not know", name, command)
					}
				default:
					if info, err := os.Stat(filepath.Join(root, script)); err != nil || info.Mode()&0o100 == 0 {
						t.Errorf("%s runs %q, which is no script of the repository", name, s.Run)
					}
				}
			}
		}
	}
	if ci := readWorkflow(t, "ci.yml").Jobs["check"].Steps; ci[len(ci)-1].Run != ".ci/run" {
		t.Errorf("ci.yml ends with %q, want .ci/run", ci[len(ci)-1].Run)
	}
	if jobs := readWorkflow(t, "release.yml").Jobs; jobs["check"].Uses != "./.github/workflows/nightly.yml" || jobs["release"].Needs != "check" {
		t.Errorf("a release does not need the checks: %+v", jobs)
	}
	if commands := strings.Count(usage, "deploy/publish.sh "); len(called) != commands {
		t.Errorf("the workflows call %v, %d commands of publish.sh, which has %d", slices.Sorted(maps.Keys(called)), len(called), commands)
	}
}

// publish runs deploy/publish.sh for a tag. It returns the output, and the commands that it would run.
func publish(t *testing.T, tag string, args ...string) (output, commands string) {
	t.Helper()
	programtest.Need(t, "bash")
	dir := t.TempDir()
	for _, name := range []string{"npm", "docker", "helm"} {
		save(t, dir, name, []byte("#!/bin/sh\n[ \"$1\" = view ] && exit $PUBLISHED\necho "+name+" \"$@\" >> "+dir+"/log\n"), nil)
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "dist", "npm"), 0o755); err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(tag, "v")
	for _, p := range append([]string{"mcp-bridge"}, "mcp-bridge-linux-x64", "mcp-bridge-win32-arm64") {
		save(t, filepath.Join(dir, "dist", "npm"), p+"-"+version+".tgz", nil, nil)
	}
	if tag == "" {
		tag = "v1.2.3"
	}
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "GITHUB_REF_NAME=" + tag, "TOKEN=secret", "DIST=" + dir + "/dist", "REGISTRY=registry.example.com/us", "GITHUB_ACTOR=me", "PUBLISHED=1"}
	output, _ = outcome(t, root, env, "deploy/publish.sh", args...)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return output, strings.ReplaceAll(string(bytes.TrimSpace(log)), dir+"/", "")
}

// The script publishes what was made, and candidates in a way that nobody gets them without asking.
func TestPublish(t *testing.T) {
	for _, tc := range []struct{ tag, command, want string }{
		{"v1.2.3", "npm", `npm publish dist/npm/mcp-bridge-linux-x64-1.2.3.tgz --provenance --access public --tag latest
npm publish dist/npm/mcp-bridge-win32-arm64-1.2.3.tgz --provenance --access public --tag latest
npm publish dist/npm/mcp-bridge-1.2.3.tgz --provenance --access public --tag latest`},
		{"v1.2.3-rc.1", "npm", `npm publish dist/npm/mcp-bridge-linux-x64-1.2.3-rc.1.tgz --provenance --access public --tag next
npm publish dist/npm/mcp-bridge-win32-arm64-1.2.3-rc.1.tgz --provenance --access public --tag next
npm publish dist/npm/mcp-bridge-1.2.3-rc.1.tgz --provenance --access public --tag next`},
		{"v1.2.3", "login", `docker login registry.example.com --username me --password-stdin
helm registry login registry.example.com --username me --password-stdin`},
		{"v1.2.3", "chart", `helm package deploy/helm/mcp-bridge --version 1.2.3 --app-version 1.2.3 --destination dist/chart
helm push dist/chart/mcp-bridge-1.2.3.tgz oci://registry.example.com/us/charts`},
	} {
		if output, got := publish(t, tc.tag, tc.command); got != tc.want {
			t.Errorf("publish.sh %s runs\n%s\nwant\n%s\nand prints %s", tc.command, got, tc.want, output)
		}
	}
	_, images := publish(t, "v1.2.3", "images")
	for target, tags := range map[string]string{
		"mcp-bridge": "--tag registry.example.com/us/mcp-bridge:1.2.3 --tag registry.example.com/us/mcp-bridge:latest",
		"uv":         "--tag registry.example.com/us/mcp-bridge:1.2.3-uv --tag registry.example.com/us/mcp-bridge:uv",
	} {
		if want := "--target " + target + " --platform linux/amd64,linux/arm64 --build-arg VERSION=1.2.3 --provenance mode=max --sbom true " + tags + " --push ."; strings.Count(images, want) != 1 {
			t.Errorf("images are made with\n%s\nwant\n%s", images, want)
		}
	}
	if _, candidates := publish(t, "v1.2.3-rc.1", "images"); regexp.MustCompile(`:(latest|node|uv|all)\b`).MatchString(candidates) {
		t.Errorf("a candidate is published as\n%s", candidates)
	}
	// Targets exist.
	dockerfile, err := os.ReadFile(filepath.Join(root, "deploy", "image", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`--target (\S+)`).FindAllStringSubmatch(images, -1) {
		if !regexp.MustCompile(`(?m)^FROM .* AS ` + m[1] + `$`).Match(dockerfile) {
			t.Errorf("the Dockerfile has no target %s", m[1])
		}
	}
	for tag, want := range map[string]string{"1": "it must be a tag", "v9.9.9": `no part "## 9.9.9"`} {
		if output, got := publish(t, tag, "notes"); got != "" || !strings.Contains(output, want) {
			t.Errorf("publish.sh notes of %s prints %q, want %s", tag, output, want)
		}
	}
}
