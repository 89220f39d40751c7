package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// nodeNames replaces Go's names of systems and processors by the names in Node.js, where the two differ.
var nodeNames = strings.NewReplacer("windows", "win32", "amd64", "x64")

// npmPackage returns the name of the npm package that has the program for a platform such as linux/amd64.
func npmPackage(platform string) string {
	return "@mcp-bridge/" + nodeNames.Replace(strings.ReplaceAll(platform, "/", "-"))
}

// manifest is the package.json of an npm package.
type manifest struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	Keywords    []string          `json:"keywords,omitempty"`
	Homepage    string            `json:"homepage"`
	Repository  map[string]string `json:"repository"`
	License     string            `json:"license"`
	OS          []string          `json:"os,omitempty"`
	CPU         []string          `json:"cpu,omitempty"`
	Bin         map[string]string `json:"bin,omitempty"`
	Engines     map[string]string `json:"engines,omitempty"`
	Optional    map[string]string `json:"optionalDependencies,omitempty"`
	// Unplugged makes Yarn unpack the package, because a program cannot run from an archive.
	Unplugged bool `json:"preferUnplugged,omitempty"`
}

// about is a sentence for package registries.
const about = "Connects any MCP client to any MCP server: stdio, Streamable HTTP, HTTP+SSE, REST APIs as tools"

const homepage = "https://github.com/mcp-bridge/bridge"

// npmTarball packs an npm package as "npm pack" does. name is the file name of the tarball.
func npmTarball(m manifest, at time.Time, files []file) (name string, data []byte, err error) {
	m.Homepage, m.License = homepage, "MIT"
	m.Repository = map[string]string{"type": "git", "url": "git+" + homepage + ".git"}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", nil, err
	}
	files = append([]file{{"package.json", append(text, '\n'), 0o644}}, files...)
	data, err = tarball("package", at, files)
	return strings.NewReplacer("@", "", "/", "-").Replace(m.Name) + "-" + m.Version + ".tgz", data, err
}

// npmProgram packs the program for a platform. npm installs the package only on this platform.
func npmProgram(platform, version string, at time.Time, binary []byte, licences ...file) (string, []byte, error) {
	system, processor, _ := strings.Cut(platform, "/")
	inside := "bin/" + program
	if system == "windows" {
		inside += ".exe"
	}
	return npmTarball(manifest{
		Name:        npmPackage(platform),
		Version:     semantic(version),
		Description: "The program of mcp-bridge for " + platform,
		OS:          []string{nodeNames.Replace(system)},
		CPU:         []string{nodeNames.Replace(processor)},
		Unplugged:   true,
	}, at, append([]file{{inside, binary, 0o755}}, licences...))
}

// npmMain packs the package that users install: a script that runs the program from the package for the user's
// platform.
func npmMain(root, version string, at time.Time) (string, []byte, error) {
	var files []file
	for _, f := range []file{{name: "packages/mcp-bridge.js", mode: 0o755}, {name: "packages/README.md", mode: 0o644}} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", filepath.FromSlash(f.name)))
		if err != nil {
			return "", nil, err
		}
		files = append(files, file{filepath.Base(f.name), text, f.mode})
	}
	m := manifest{
		Name:        program,
		Version:     semantic(version),
		Description: about,
		Keywords:    []string{"mcp", "mcp-proxy", "mcp-gateway", "model-context-protocol", "stdio", "sse", "streamable-http", "openapi"},
		Bin:         map[string]string{program: "mcp-bridge.js"},
		Engines:     map[string]string{"node": ">=18"},
		Optional:    map[string]string{},
	}
	for _, p := range platforms {
		m.Optional[npmPackage(p)] = m.Version
	}
	return npmTarball(m, at, files)
}

// semver matches semantic versions without a build.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// separators matches the characters between the parts of a version.
var separators = regexp.MustCompile(`[^0-9A-Za-z]+`)

// semantic returns a semantic version, which npm and nfpm require. Between releases, a version may be the name of a
// commit.
func semantic(version string) string {
	if semver.MatchString(version) {
		return version
	}
	return "0.0.0-dev-" + separators.ReplaceAllString(version, "-")
}
