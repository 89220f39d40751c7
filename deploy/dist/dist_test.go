package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// root is the folder of the repository.
const root = "../.."

// copyOf copies the files that a build needs into a new folder with a name.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "testdata", "integration", "bin", "dist"}, rel) || d.Name() == "node_modules" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular() || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// made makes a release from a copy in a folder with a name.
func made(t *testing.T, name string, env []string, platforms ...string) (dir, source string) {
	t.Helper()
	source = copyOf(t, name)
	r := release{root: source, out: t.TempDir(), version: "1.2.3", time: time.Unix(1_700_000_001, 0).UTC(), platforms: platforms, env: env}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.out, source
}

// read reads all files below a folder, by their paths in it.
func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path], err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unpacked returns the files of an archive, with their modes and times.
func unpacked(t *testing.T, name string, data []byte) map[string]file {
	t.Helper()
	all := map[string]file{}
	at := time.Unix(1_700_000_001, 0)
	if strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, ".whl") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !f.Modified.Equal(at) {
				t.Errorf("%s: %s is of %v", name, f.Name, f.Modified)
			}
			all[f.Name] = file{f.Name, text, int64(f.Mode())}
		}
		return all
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uname != "root" || h.Uid != 0 {
			t.Errorf("%s: %s is of %v and %s", name, h.Name, h.ModTime, h.Uname)
		}
		all[h.Name] = file{h.Name, text, h.Mode}
	}
}

// leaks returns the paths that occur in the files.
func leaks(files map[string]file, paths ...string) (all []string) {
	for name, f := range files {
		for _, p := range paths {
			if p != "" && bytes.Contains(f.data, []byte(p)) {
				all = append(all, name+" has "+p)
			}
		}
	}
	return all
}

// Two releases that are made in folders with different names are the same, byte for byte. The second may use the
// compiler's cache of the first, so the test also looks for the names of the folders. With BRIDGE_TEST_DIST=all
// everything is compiled twice. It takes 40 seconds of a processor (O-066, O-067).
func TestSameBytes(t *testing.T) {
	all := os.Getenv("BRIDGE_TEST_DIST") == "all"
	if !all && !scaletest.Whole {
		t.Skip("makes a release twice with BRIDGE_TEST_MATRIX=all")
	}
	which, env := []string{runtime.GOOS + "/" + runtime.GOARCH}, []string(nil)
	if !slices.Contains(platforms, which[0]) {
		t.Skipf("no release is made for %s", which[0])
	}
	if all {
		env = []string{"GOCACHE=" + t.TempDir()}
	}
	first, one := made(t, "one", nil, which...)
	second, two := made(t, "another-folder", env, which...)
	a, b := read(t, first), read(t, second)
	t.Run("list", func(t *testing.T) { checkList(t, a) })
	if want := 8 + map[bool]int{true: 2}[runtime.GOOS == "linux"]; len(a) != want || len(b) != want {
		t.Errorf("made %q and %d files, want an archive, its list, the sums, two packages for npm, a wheel, a formula, a manifest, and two packages for Linux", slices.Sorted(maps.Keys(a)), len(b))
	}
	goEnv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s is another one in a folder of another name", name)
		}
		if strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, ".whl") || strings.HasSuffix(name, ".tgz") {
			files := unpacked(t, name, a[name])
			for _, leak := range leaks(files, one, two, goEnv("GOMODCACHE"), goEnv("GOCACHE")) {
				t.Error(leak)
			}
		}
		if strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".zip") {
			files := unpacked(t, name, a[name])
			checkArchive(t, name, files)
		}
	}
	checkSums(t, first)
}

// The test detects a program that contains the name of the folder.
func TestLeaks(t *testing.T) {
	if got := leaks(map[string]file{"x": {data: []byte("a /tmp/one/b.go c")}, "y": {data: []byte("nothing")}}, "/tmp/one", "/tmp/two", ""); !slices.Equal(got, []string{"x has /tmp/one"}) {
		t.Errorf("leaks = %q", got)
	}
}

// Another system has another form of archive.
func TestWindows(t *testing.T) {
	if os.Getenv("BRIDGE_TEST_DIST") != "all" {
		t.Skip("compiles everything for another system: set BRIDGE_TEST_DIST=all")
	}
	dir, _ := made(t, "windows", nil, "windows/amd64")
	for name, data := range read(t, dir) {
		if strings.HasSuffix(name, ".zip") {
			checkArchive(t, name, unpacked(t, name, data))
		}
	}
	checkSums(t, dir)
}

// checkArchive checks the content of an archive.
func checkArchive(t *testing.T, name string, files map[string]file) {
	t.Helper()
	folder, _, _ := strings.Cut(strings.TrimSuffix(name, ".zip"), ".tar.gz")
	windows, linux := strings.HasSuffix(name, ".zip"), strings.Contains(name, "linux")
	binary := map[bool]string{true: "mcp-bridge.exe", false: "mcp-bridge"}[windows]
	for _, want := range []struct {
		file, has string
		mode      int64
	}{
		{binary, "", 0o755}, {"LICENSE", "MIT", 0o644}, {"README.md", "MCP", 0o644}, {"CHANGELOG.md", "Changelog", 0o644},
		{"THIRD-PARTY-LICENSES.txt", "github.com/spf13/cobra v", 0o644}, {"bridge.schema.json", "$schema", 0o644},
		{"man/man1/mcp-bridge.1", `.TH "MCP-BRIDGE" "1" "Nov 2023" "mcp-bridge 1.2.3" "mcp-bridge"`, 0o644},
		{"man/man1/mcp-bridge-serve.1", "--listen", 0o644},
		{"completions/mcp-bridge.bash", "__start_mcp-bridge", 0o644}, {"completions/_mcp-bridge", "#compdef mcp-bridge", 0o644},
		{"completions/mcp-bridge.fish", "complete -c mcp-bridge", 0o644}, {"completions/mcp-bridge.ps1", "Register-ArgumentCompleter", 0o644},
		{"systemd/mcp-bridge.service", "[Service]", 0o644},
	} {
		f, ok := files[folder+"/"+want.file]
		if want.file == "systemd/mcp-bridge.service" && !linux {
			if ok {
				t.Errorf("%s has %s", name, want.file)
			}
			continue
		}
		if !ok || f.mode != want.mode || !bytes.Contains(f.data, []byte(want.has)) {
			t.Errorf("%s: %s is there: %v, mode %o, has %q: %v", name, want.file, ok, f.mode, want.has, bytes.Contains(f.data, []byte(want.has)))
		}
	}
	if extra := files[folder+"/man/man1/mcp-bridge-manual.1"]; extra.data != nil {
		t.Errorf("%s has a page of the command that writes the pages", name)
	}
}

// checkSums checks checksums.txt with the program that users have.
func checkSums(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Log("there is no sha256sum")
		return
	}
	check := func() (string, error) {
		c := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := check()
	if files := len(read(t, dir)) - 1; err != nil || strings.Count(out, ": OK\n") != files {
		t.Errorf("sha256sum says %v of %d files:\n%s", err, files, out)
	}
}

// checkList checks that every module of the program is in its list once, and that the program prints the requested
// version.
func checkList(t *testing.T, files map[string][]byte) {
	t.Helper()
	name, ending := "mcp-bridge_1.2.3_"+runtime.GOOS+"_"+runtime.GOARCH, ".tar.gz"
	inside := "mcp-bridge"
	if runtime.GOOS == "windows" {
		ending, inside = ".zip", "mcp-bridge.exe"
	}
	program := filepath.Join(t.TempDir(), inside)
	if err := os.WriteFile(program, unpacked(t, name+ending, files[name+ending])[name+"/"+inside].data, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(files[name+ending+".spdx.json"], &d); err != nil {
		t.Fatal(err)
	}
	for _, fault := range missing(string(out), d) {
		t.Error(fault)
	}
	for _, p := range d.Packages {
		if p.Declared == "" || p.Refs[0].Locator == "" || p.ID == "" {
			t.Errorf("%s lacks something: %+v", p.Name, p)
		}
	}
	if n := len(d.Relationships); n != len(d.Packages) {
		t.Errorf("%d relationships of %d packages", n, len(d.Packages))
	}
	said, err := exec.Command(program, "version").Output()
	if want := fmt.Sprintf("mcp-bridge v1.2.3 %s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil || string(said) != want {
		t.Errorf("version prints %q (%v), want %q", said, err, want)
	}
	// Broken lists are detected.
	d.Packages = append(d.Packages[:len(d.Packages)-1], d.Packages[2])
	if got := missing(string(out), d); len(got) != 2 {
		t.Errorf("of a list with one module twice and one not at all is said %q", got)
	}
}

// missing compares the output of go version -m with a list.
func missing(printed string, d document) (faults []string) {
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^\t(dep|=>)\t(\S+)\t(\S+)`).FindAllStringSubmatch(printed, -1) {
		n++
		times := 0
		for _, p := range d.Packages {
			if p.Name == m[2] && p.Version == m[3] {
				times++
			}
		}
		if times != 1 {
			faults = append(faults, fmt.Sprintf("%s %s is in the list %d times", m[2], m[3], times))
		}
	}
	if n < 20 {
		faults = append(faults, fmt.Sprintf("go version -m names %d modules only", n))
	}
	return faults
}

// Wrong requests are refused.
func TestMistakes(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000001")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-version", "../1"}, `the version is "../1"`},
		{[]string{"-version", "1", "-platforms", "plan9/amd64"}, `the platform is "plan9/amd64": choose from linux/amd64`},
	} {
		if err := command(t.Context(), append(tc.args, "-root", root, "-out", t.TempDir())); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("command(%q) = %v, want %s", tc.args, err, tc.want)
		}
	}
	for epoch, want := range map[string]string{"x": "SOURCE_DATE_EPOCH is", "5": "after 1980", "": "set SOURCE_DATE_EPOCH"} {
		if _, err := commitTime(t.Context(), t.TempDir(), epoch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("commitTime(%q) = %v, want %s", epoch, err, want)
		}
	}
}

// publishing is the part of GoReleaser's configuration that the test reads.
type publishing struct {
	Version int    `yaml:"version"`
	Project string `yaml:"project_name"`
	Dist    string `yaml:"dist"`
	Before  struct {
		Hooks []string `yaml:"hooks"`
	} `yaml:"before"`
	Builds []struct {
		Skip bool `yaml:"skip"`
	} `yaml:"builds"`
	Checksum  struct{ Disable bool } `yaml:"checksum"`
	Changelog struct{ Disable bool } `yaml:"changelog"`
	Release   struct {
		Draft      bool                         `yaml:"draft"`
		Replace    bool                         `yaml:"replace_existing_draft"`
		Prerelease string                       `yaml:"prerelease"`
		GitHub     struct{ Owner, Name string } `yaml:"github"`
		Files      []struct{ Glob string }      `yaml:"extra_files"`
	} `yaml:"release"`
}

// GoReleaser publishes every file of a release, and makes none itself (O-065).
func TestPublishing(t *testing.T) {
	text, err := os.ReadFile(root + "/.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decode := func(text []byte) (p publishing, err error) {
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		err = d.Decode(&p)
		return p, err
	}
	p, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if p.Version != 2 || p.Project != program || len(p.Builds) != 1 || !p.Builds[0].Skip || p.Dist == "dist" || !p.Checksum.Disable {
		t.Errorf(".goreleaser.yaml says %+v", p)
	}
	if !slices.Equal(p.Before.Hooks, []string{"make dist VERSION={{ .Version }}"}) {
		t.Errorf("before the release runs %q", p.Before.Hooks)
	}
	for _, name := range []string{"mcp-bridge_1.2.3_linux_amd64.tar.gz", "mcp-bridge_1.2.3_windows_arm64.zip.spdx.json", "mcp-bridge_1.2.3_arm64.deb", "mcp-bridge-1.2.3-1.x86_64.rpm", "checksums.txt"} {
		if !slices.ContainsFunc(p.Release.Files, func(f struct{ Glob string }) bool {
			ok, err := filepath.Match(strings.ReplaceAll(f.Glob, "{{ .Version }}", "1.2.3"), "dist/"+name)
			return ok && err == nil
		}) {
			t.Errorf("%s is not published", name)
		}
	}
	if _, err := decode(bytes.Replace(text, []byte("skip:"), []byte("skipp:"), 1)); err == nil {
		t.Error("a key that is misspelt is not seen")
	}
}
