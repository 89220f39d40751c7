// Command mutants tests the tests: it breaks the core of the bridge in some thousand small ways, one at a time, and
// runs the tests that reach the change until one of them fails.
//
//	go run ./integration/mutants          # all that were noticed still are
//	go run ./integration/mutants -update  # write the list again
//
// The file list has each mutant with the test that kills it, or that it survives. Run the command before and after
// tests are deleted: a mutant that only they have killed is an error. Mutants that survive are not run again without
// -update, and of a killed one the test in the list runs first: that takes some minutes.
//
// All mutants are compiled together, with an overlay that leaves the folder as it is: the variable MUTANT chooses one
// of them when a test begins. So each package is compiled once, where gremlins and go-mutesting compile the tests for
// each mutant. They also know no dropped calls that are deferred, and no tests of other packages: the core is tested
// by those of bridge/gateway and bridge/server too.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/mcp-bridge/bridge/"

// mutatedPackages are patterns of the packages that are broken.
var mutatedPackages = []string{
	"./bridge/guard/...",
	"./bridge/conn",
	"./bridge/internal/translate/...",
	"./bridge/replay",
	"./bridge/server/internal/access",
	"./bridge/server/internal/placement",
}

// testPackages are patterns of the packages whose tests may notice, besides those of the broken package. Of them, those
// that import a broken one are used, in this order.
var testPackages = []string{"./bridge/gateway", "./bridge/server", "./bridge/...", "./adapters/...", "./internal/..."}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run is one run of the command.
type run struct {
	root    string // folder of the module
	folder  string // for the overlay and the tests
	workers int

	mutants  []mutant // the id of a mutant is its place, from 1
	binaries []*binary
	own      map[string]*binary // by package
}

// command runs a command line.
func command(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	file := f.String("list", "integration/mutants/list.txt", "file of the list")
	update := f.Bool("update", false, "try all mutants, and write the list")
	only := f.String("only", "", "use only mutants of packages whose names contain this")
	workers := f.Int("p", 2, "how many tests run at once")
	if err := f.Parse(args); err != nil {
		return err
	}
	known, err := readList(*file)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	r := &run{root: root, folder: folder, workers: *workers, own: map[string]*binary{}}
	if err := r.make(*only); err != nil {
		return err
	}
	if err := r.compile(ctx); err != nil {
		return err
	}
	if *update {
		if err := r.trace(ctx); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d mutants, %d packages with tests\n", len(r.mutants)-1, len(r.binaries))
		return r.update(ctx, known, *only, *file)
	}
	return r.check(ctx, known, *only)
}

// make rewrites the packages, and writes the overlay.
func (r *run) make(only string) error {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
	}, mutatedPackages...)
	if err != nil {
		return err
	}
	r.mutants = make([]mutant, 1)
	overlay := map[string]string{}
	for _, p := range loaded {
		name := strings.TrimPrefix(p.PkgPath, module)
		if len(p.Errors) > 0 {
			return fmt.Errorf("load %s: %w", name, p.Errors[0])
		}
		if !strings.Contains(name, only) || strings.HasSuffix(name, "test") {
			continue
		}
		before := len(r.mutants)
		for i, file := range p.Syntax {
			if err := r.rewriteFile(p, name, file, p.CompiledGoFiles[i], overlay); err != nil {
				return err
			}
		}
		if len(r.mutants) > before {
			overlay[filepath.Join(r.root, name, "mutated.go")] = filepath.Join(r.folder, strings.ReplaceAll(name, "/", "_")+".go")
			r.own[name] = nil
		}
	}
	for name := range r.own {
		text := fmt.Sprintf(chooser, filepath.Base(name), len(r.mutants))
		if err := os.WriteFile(filepath.Join(r.folder, strings.ReplaceAll(name, "/", "_")+".go"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	return os.WriteFile(r.overlay(), data, 0o600)
}

func (r *run) overlay() string { return filepath.Join(r.folder, "overlay.json") }

func (r *run) rewriteFile(p *packages.Package, name string, file *ast.File, path string, overlay map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s := source{pkg: name, name: filepath.Base(path), text: text, fset: p.Fset, file: file, info: p.TypesInfo}
	rewritten, found, err := rewrite(s, len(r.mutants))
	if err != nil || len(found) == 0 {
		return err
	}
	r.mutants = append(r.mutants, found...)
	overlay[path] = filepath.Join(r.folder, fmt.Sprintf("%d_%s", len(overlay), filepath.Base(path)))
	return os.WriteFile(overlay[path], rewritten, 0o600)
}

// compile compiles the tests of the broken packages, and of those that import them.
func (r *run) compile(ctx context.Context) error {
	users, err := r.users()
	if err != nil {
		return err
	}
	binaries, errs := make([]*binary, len(users)), make([]error, len(users))
	r.parallel(len(users), func(i int) { binaries[i], errs[i] = r.compileTests(ctx, users[i]) })
	for _, b := range binaries {
		if b == nil {
			continue
		}
		r.binaries = append(r.binaries, b)
		if _, ok := r.own[b.pkg]; ok {
			r.own[b.pkg] = b
		}
	}
	return errors.Join(errs...)
}

// compileTests returns nil if a package has no tests.
func (r *run) compileTests(ctx context.Context, name string) (*binary, error) {
	b := newBinary(r.root, r.folder, name)
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-p", "1", "-overlay", r.overlay(), "-o", b.path, "./"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", name, err, out)
	}
	if _, err := os.Stat(b.path); err != nil {
		return nil, nil
	}
	return b, nil
}

// users returns the packages with tests that import a broken package, directly or not at all but in their tests.
func (r *run) users() ([]string, error) {
	var users []string
	for _, pattern := range testPackages {
		loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedForTest, Tests: true}, pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range loaded {
			path := p.PkgPath
			if p.ForTest != "" {
				path = p.ForTest
			}
			name := strings.TrimPrefix(path, module)
			_, uses := r.own[name]
			for imported := range p.Imports {
				_, ok := r.own[strings.TrimPrefix(imported, module)]
				uses = uses || ok
			}
			if uses && !slices.Contains(users, name) && !strings.HasSuffix(name, "test") && !strings.HasSuffix(name, ".test") {
				users = append(users, name)
			}
		}
	}
	return users, nil
}

// parallel calls work for 0 to n-1, some at a time.
func (r *run) parallel(n int, work func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range r.workers {
		wg.Go(func() {
			for i := range next {
				work(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// trace finds the mutants that each test reaches.
func (r *run) trace(ctx context.Context) error {
	for _, b := range r.binaries {
		names, err := b.names(ctx)
		if err != nil {
			return err
		}
		tests := make([]*test, len(names))
		r.parallel(len(names), func(i int) {
			tests[i] = b.trace(ctx, names[i], fmt.Sprintf("%s.%d", b.path, i))
		})
		for i, t := range tests {
			switch {
			case t != nil:
				b.tests = append(b.tests, t)
			case ctx.Err() == nil:
				fmt.Fprintf(os.Stderr, "%s %s fails without a mutant, and is left out\n", b.pkg, names[i])
			}
		}
	}
	return ctx.Err()
}

// kill returns the killer of a mutant: a test of its own package before others.
func (r *run) kill(ctx context.Context, id int) killer {
	inOrder := slices.Clone(r.binaries)
	own := r.own[r.mutants[id].Package]
	slices.SortStableFunc(inOrder, func(a, b *binary) int { return cmp.Compare(rank(a, own), rank(b, own)) })
	for _, b := range inOrder {
		if name, killed := b.kills(ctx, id); killed {
			return killer{b.pkg, name}
		}
	}
	return killer{}
}

// rank puts own before the other binaries.
func rank(b, own *binary) int {
	if b == own {
		return 0
	}
	return 1
}

// update tries all mutants, and writes the list, also at times during the work. Of other packages than only the list
// stays as it is.
func (r *run) update(ctx context.Context, known list, only, file string) error {
	for m := range known {
		if strings.Contains(m.Package, only) {
			delete(known, m)
		}
	}
	var mu sync.Mutex
	r.parallel(len(r.mutants)-1, func(i int) {
		k := r.kill(ctx, i+1)
		if ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		known[r.mutants[i+1]] = k
		if len(known)%100 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d mutants\n", i+1, len(r.mutants)-1)
			known.write(file)
		}
	})
	fmt.Print(known.summary())
	return errors.Join(known.write(file), ctx.Err())
}

// check fails if a mutant survives that the list says is killed, or if the list is no longer that of the code.
func (r *run) check(ctx context.Context, known list, only string) error {
	for m := range known {
		if !strings.Contains(m.Package, only) {
			delete(known, m)
		}
	}
	left, unknown, err := r.again(ctx, known)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		if err := r.trace(ctx); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var survivors []string
	r.parallel(len(left), func(i int) {
		id := left[i]
		k := r.kill(ctx, id)
		was, ok := known[r.mutants[id]]
		mu.Lock()
		defer mu.Unlock()
		switch {
		case k != (killer{}):
			fmt.Printf("killed by %s instead of %s:\t%s\n", k, was, r.mutants[id])
		case ok:
			survivors = append(survivors, fmt.Sprintf("%s\t%s", r.mutants[id], was))
		default:
			fmt.Printf("new, and survives:\t%s\n", r.mutants[id])
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	gone := len(known) - (len(r.mutants) - 1 - unknown)
	fmt.Printf("%d mutants, %d of them not in the list; %d of the list are no longer there\n", len(r.mutants)-1, unknown, gone)
	if len(survivors) > 0 {
		return fmt.Errorf("%d mutants survive that tests killed before; the last column is the test:\n%s", len(survivors), strings.Join(survivors, "\n"))
	}
	if unknown+gone > len(known)/10 {
		return errors.New("the list is old: write it again with -update, and look at what survives")
	}
	return nil
}

// again runs the test in the list on each mutant that is killed there. It returns the ids of the mutants on which this
// test does not fail, and of those that are not in the list.
func (r *run) again(ctx context.Context, known list) (left []int, unknown int, err error) {
	var mu sync.Mutex
	r.parallel(len(r.mutants)-1, func(i int) {
		k, ok := known[r.mutants[i+1]]
		killed := k != (killer{}) && r.killsAgain(ctx, k, i+1)
		mu.Lock()
		defer mu.Unlock()
		if !ok {
			unknown++
		}
		if !ok || k != (killer{}) && !killed {
			left = append(left, i+1)
		}
	})
	return left, unknown, ctx.Err()
}

func (r *run) killsAgain(ctx context.Context, k killer, id int) bool {
	i := slices.IndexFunc(r.binaries, func(b *binary) bool { return b.pkg == k.Package })
	if i < 0 {
		return false
	}
	// The test may have taken a while when it was traced; how long is not in the list.
	_, killed := r.binaries[i].killedBy(ctx, []*test{{name: k.Test, took: 2 * time.Second}}, id)
	return killed
}
