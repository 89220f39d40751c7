// Command dist makes the archives of a release with only the Go toolchain:
//
//	go run ./deploy/dist -version 1.2.3 -out dist
//
// It writes an archive for each system, a software bill of materials for the system's program (SBOM, SPDX 2.3),
// packages for npm, PyPI, Debian and Fedora, a Homebrew formula and a Scoop manifest, and checksums.txt. The same
// commit and Go version give the same bytes, in any folder and on any machine.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/toolchain"
)

// program is the name of the program in the archives.
const program = "mcp-bridge"

var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

type release struct {
	root      string // folder of the repository
	out       string // folder for the files; created if missing
	version   string // such as 1.2.3
	time      time.Time
	platforms []string // such as linux/amd64
	env       []string // variables of the go command, in addition to those of all builds
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// command runs a command line.
func command(ctx context.Context, args []string) error {
	var r release
	var only string
	f := flag.NewFlagSet("dist", flag.ContinueOnError)
	f.StringVar(&r.root, "root", ".", "folder of the repository")
	f.StringVar(&r.out, "out", "dist", "folder for the files")
	f.StringVar(&r.version, "version", "", "version of the release; by default that of the last tag of git, and the commits since")
	f.StringVar(&only, "platforms", strings.Join(platforms, ","), "what to build for")
	if err := f.Parse(args); err != nil {
		return err
	}
	r.platforms = strings.Split(only, ",")
	if r.version == "" {
		out, err := git(ctx, r.root, "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return fmt.Errorf("name the version with -version: %w", err)
		}
		r.version = out
	}
	var err error
	if r.time, err = commitTime(ctx, r.root, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	return r.make(ctx)
}

// commitTime returns the time of all files in archives: epoch in seconds, or else the time of the commit.
func commitTime(ctx context.Context, root, epoch string) (time.Time, error) {
	if epoch == "" {
		out, err := git(ctx, root, "log", "-1", "--format=%ct")
		if err != nil {
			return time.Time{}, fmt.Errorf("set SOURCE_DATE_EPOCH to the seconds that all files are dated with: %w", err)
		}
		epoch = out
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 315532800 { // zip files cannot have times before 1980
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: it must be seconds since 1970, and after 1980", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...))
}

// output runs a command and returns its output without the final line break.
func output(c *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// versions matches the versions that may be part of file names.
var versions = regexp.MustCompile(`^v?[0-9A-Za-z][0-9A-Za-z.+-]*$`)

func (r *release) make(ctx context.Context) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("the version is %q: it must be of the form 1.2.3 or 1.2.3-rc.1", r.version)
	}
	r.version = strings.TrimPrefix(r.version, "v")
	for _, p := range r.platforms {
		if !slices.Contains(platforms, p) {
			return fmt.Errorf("the platform is %q: choose from %s", p, strings.Join(platforms, ", "))
		}
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	papers, err := r.papers(ctx, work)
	if err != nil {
		return err
	}
	sums := map[string][sha256.Size]byte{}
	write := func(name string, data []byte) error {
		sums[name] = sha256.Sum256(data)
		to := filepath.Join(r.out, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644))
	}
	for _, p := range r.platforms {
		system, processor, _ := strings.Cut(p, "/")
		name := strings.Join([]string{program, r.version, system, processor}, "_")
		binary := filepath.Join(work, name)
		if err := r.build(ctx, binary, "", "GOOS="+system, "GOARCH="+processor); err != nil {
			return err
		}
		contents, err := contentsOf(ctx, binary, r.root)
		if err != nil {
			return err
		}
		sbom, err := contents.spdx(name, r.version, r.time)
		if err != nil {
			return err
		}
		files, err := r.files(system, binary, papers)
		if err != nil {
			return err
		}
		files = append(files, file{"THIRD-PARTY-LICENSES.txt", contents.licences(), 0o644})
		ending, pack := ".tar.gz", tarball
		if system == "windows" {
			ending, pack = ".zip", zipped
		}
		archive, err := pack(name, r.time, files)
		if err != nil {
			return err
		}
		if err := errors.Join(write(name+ending, archive), write(name+ending+".spdx.json", sbom), r.packages(ctx, p, binary+".packages", files, write)); err != nil {
			return err
		}
	}
	name, data, err := npmMain(r.root, r.version, r.time)
	if err != nil {
		return err
	}
	manifest, err := scoop(r.version, sums)
	if err != nil {
		return err
	}
	if err := errors.Join(write("npm/"+name, data), write("homebrew/"+program+".rb", formula(r.version, sums)), write("scoop/"+program+".json", manifest)); err != nil {
		return err
	}
	var list strings.Builder
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&list, "%x  %s\n", sums[name], name) // in the format of sha256sum --check
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(list.String()), 0o644)
}

// packages writes the packages for a platform, made from the files of the platform's archive. It works in folder.
func (r *release) packages(ctx context.Context, platform, folder string, files []file, write func(string, []byte) error) error {
	var binary []byte
	var licences []file
	for _, f := range files {
		switch {
		case f.mode == 0o755:
			binary = f.data
		case strings.Contains(f.name, "LICENSE"):
			licences = append(licences, f)
		}
	}
	npm, tarball, err := npmProgram(platform, r.version, r.time, binary, licences...)
	if err != nil {
		return err
	}
	pypi, zip, err := wheel(r.root, platform, r.version, r.time, binary, licences...)
	if err != nil {
		return err
	}
	if err := errors.Join(write("npm/"+npm, tarball), write("pypi/"+pypi, zip)); err != nil {
		return err
	}
	processor, linux := strings.CutPrefix(platform, "linux/")
	if !linux {
		return nil
	}
	all, err := linuxPackages(ctx, r.root, folder, processor, r.version, r.time, files)
	for _, f := range all {
		err = errors.Join(err, write(f.name, f.data))
	}
	return err
}

// goCommand returns a go command whose result depends only on the source and on the version of Go.
func (r *release) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = r.root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOWORK=off")
	c.Env = append(c.Env, r.env...)
	return c
}

// build compiles the program with build tags.
func (r *release) build(ctx context.Context, to, tags string, env ...string) error {
	c := r.goCommand(ctx, "build", "-trimpath", "-buildvcs=false", "-tags=nomsgpack,"+tags,
		"-ldflags=-s -w -buildid= -X github.com/mcp-bridge/bridge/bridge/server.version=v"+r.version, "-o", to, "./cmd/bridge")
	c.Env = append(c.Env, env...)
	if _, err := output(c); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(to)
	if err == nil && toolchain.Vulnerable(info.GoVersion) {
		err = fmt.Errorf("%s has an HTTP/2 server that any client can crash (GO-2026-6617): make the release with %s", info.GoVersion, toolchain.Fixed)
	}
	return err
}

// papers returns the manual pages and shell completions, which are the same for all systems. A program for this machine
// writes them.
func (r *release) papers(ctx context.Context, work string) ([]file, error) {
	manual := filepath.Join(work, "manual")
	if err := os.Mkdir(manual, 0o755); err != nil {
		return nil, err
	}
	binary := filepath.Join(work, "papers"+map[bool]string{true: ".exe"}[runtime.GOOS == "windows"])
	if err := r.build(ctx, binary, "manual"); err != nil {
		return nil, err
	}
	run := func(args ...string) (string, error) { return output(exec.CommandContext(ctx, binary, args...)) }
	if _, err := run("manual", manual, r.time.Format("January 2006"), program+" "+r.version); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(manual) // sorted
	if err != nil {
		return nil, err
	}
	var all []file
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(manual, page.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, file{"man/man1/" + page.Name(), text, 0o644})
	}
	for _, shell := range []struct{ name, file string }{
		{"bash", program + ".bash"}, {"zsh", "_" + program}, {"fish", program + ".fish"}, {"powershell", program + ".ps1"},
	} {
		text, err := run("completion", shell.name)
		if err != nil {
			return nil, err
		}
		all = append(all, file{"completions/" + shell.file, []byte(text + "\n"), 0o644})
	}
	return all, nil
}

// files returns the files of an archive, except files that are made from the archive's program.
func (r *release) files(system, binary string, papers []file) ([]file, error) {
	type copied struct {
		from, to string
		mode     int64
	}
	all := []copied{
		{"LICENSE", "LICENSE", 0o644}, {"README.md", "README.md", 0o644}, {"CHANGELOG.md", "CHANGELOG.md", 0o644},
		{"docs/bridge.schema.json", "bridge.schema.json", 0o644},
	}
	if system == "linux" {
		all = append(all, copied{"deploy/systemd/mcp-bridge.service", "systemd/mcp-bridge.service", 0o644})
	}
	var files []file
	for _, c := range all {
		text, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(c.from)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{c.to, text, c.mode})
	}
	code, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	name := program
	if system == "windows" {
		name += ".exe"
	}
	return append(append(files, file{name, code, 0o755}), papers...), nil
}
