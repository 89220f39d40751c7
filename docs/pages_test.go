// Package docs is the documentation. Its tests hold it to the program: commands
// are run, configurations are read, links lead somewhere, and the English is
// plain.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = ".."

// A page is a file for readers.
type page struct {
	name string // below root, with slashes
	text string
}

// A block is a fenced part of a page.
type block struct {
	page, language, text string
	line                 int // of the fence
	// follows is whether only blank lines separate it from the block before.
	follows bool
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// first returns the first line of a text, which names a block in a list of exceptions.
func first(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, pattern := range []string{"*.md", "llms.txt", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("there are no pages %s (error %v)", pattern, err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page{filepath.ToSlash(name), strings.ReplaceAll(string(text), "\r\n", "\n")})
		}
	}
	return all
}

// blocks returns the fenced blocks of a page, without their indentation.
func (p page) blocks() []block {
	var all []block
	var b *block
	indent, between := "", 0
	for i, line := range strings.Split(p.text, "\n") {
		text := strings.TrimLeft(line, " ")
		switch {
		case b == nil && strings.HasPrefix(text, "```"):
			indent = line[:len(line)-len(text)]
			b = &block{page: p.name, language: strings.TrimPrefix(text, "```"), line: i + 1, follows: len(all) > 0 && between == 0}
		case b != nil && text == "```":
			all = append(all, *b)
			b, between = nil, 0
		case b != nil:
			b.text += strings.TrimPrefix(line, indent) + "\n"
		case text != "":
			between++
		}
	}
	return all
}

// parts cuts a page after each occurrence of a text. Blocks of the parts keep their lines.
func (p page) parts(after string) []page {
	if after == "" {
		return []page{p}
	}
	var all []page
	before := 0
	for _, text := range strings.SplitAfter(p.text, after) {
		all = append(all, page{p.name, strings.Repeat("\n", before) + text})
		before += strings.Count(text, "\n")
	}
	return all
}

func TestBlocks(t *testing.T) {
	p := page{"p.md", "x\n```sh\na\n```\n\n```text\nb\n```\n- y\n  ```yaml\n  c: d\n  ```\n"}
	want := []block{{"p.md", "sh", "a\n", 2, false}, {"p.md", "text", "b\n", 6, true}, {"p.md", "yaml", "c: d\n", 10, false}}
	if got := p.blocks(); !slices.Equal(got, want) {
		t.Errorf("blocks(%q) = %v, want %v", p.text, got, want)
	}
	if parts := p.parts("- y\n"); len(parts) != 2 || !slices.Equal(parts[1].blocks(), want[2:]) {
		t.Errorf("parts(%q) = %q", p.text, parts)
	}
}

// An exception is a block or a command that is not tried, by its page and its
// first line.
type exception struct{ page, line string }

// exceptions counts how often each exception of a list was used.
type exceptions struct {
	why  map[exception]string
	used map[exception]bool
}

func (e *exceptions) has(page, line string) bool {
	key := exception{page, line}
	if _, ok := e.why[key]; !ok {
		return false
	}
	if e.used == nil {
		e.used = map[exception]bool{}
	}
	e.used[key] = true
	return true
}

// check fails for exceptions that are not in the pages any more, or say no reason.
func (e *exceptions) check(t *testing.T) {
	t.Helper()
	for key, why := range e.why {
		if !e.used[key] {
			t.Errorf("%s does not have %q any more: remove it from the list of exceptions", key.page, key.line)
		}
		if why == "" {
			t.Errorf("%s, %q: the exception has no reason", key.page, key.line)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+?) *$`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline  = regexp.MustCompile("`[^`\n]+`")
)

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := link.ReplaceAllString(m[1], "]")
		var slug strings.Builder
		for _, c := range strings.ToLower(title) {
			switch {
			case c == ' ':
				slug.WriteByte('-')
			case c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c > 127 && c != '…' && c != '–' && c != '→':
				slug.WriteRune(c)
			}
		}
		name := slug.String()
		for n := 1; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug.String(), n)
		}
		all[name] = true
	}
	return all
}

// broken returns what is wrong with the links of a page, given the anchors of
// each file.
func broken(p page, look func(name string) (anchors map[string]bool, ok bool)) []string {
	var faults []string
	text := inline.ReplaceAllString(fenced.ReplaceAllString(p.text, ""), "")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, ":") { // elsewhere
			continue
		}
		to := p.name
		if target != "" {
			to = filepath.ToSlash(filepath.Join(filepath.Dir(p.name), target))
		}
		there, ok := look(to)
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: the link %s leads nowhere", p.name, m[1]))
		} else if anchor != "" && !there[anchor] {
			faults = append(faults, fmt.Sprintf("%s: the link %s: there is no heading for it", p.name, m[1]))
		}
	}
	return faults
}

// Links between the pages, and to other files, lead somewhere.
func TestLinks(t *testing.T) {
	n := 0
	known := map[string]map[string]bool{} // many links lead to the same page
	for _, p := range pages(t) {
		n += strings.Count(p.text, "](")
		for _, fault := range broken(p, func(name string) (map[string]bool, bool) {
			if there, ok := known[name]; ok {
				return there, true
			}
			path := filepath.Join(root, filepath.FromSlash(name))
			text, err := os.ReadFile(path)
			if err != nil {
				_, err = os.Stat(path)
			}
			if err == nil && strings.HasSuffix(name, ".md") {
				known[name] = anchors(string(text))
			}
			return known[name], err == nil
		}) {
			t.Error(fault)
		}
	}
	if n < 100 {
		t.Errorf("only %d links: the test looks in the wrong place", n)
	}
}

// The test does see a wrong link.
func TestLinksWrong(t *testing.T) {
	files := map[string]string{"docs/b.md": "# B\n## Who, and `what`: x_y\n```\n# No\n```\n## B\n"}
	p := page{"docs/a.md", "[x](b.md) [x](b.md#who-and-what-x_y) [x](b.md#b-1) [x](#here) [x](https://example.com/#y)\n# Here\n" +
		"[x](c.md) [x](b.md#no) [x](#there)\n```\n[x](d.md)\n```\n"}
	files[p.name] = p.text
	got := broken(p, func(name string) (map[string]bool, bool) { text, ok := files[name]; return anchors(text), ok })
	want := []string{"docs/a.md: the link c.md leads nowhere", "docs/a.md: the link b.md#no: there is no heading for it",
		"docs/a.md: the link #there: there is no heading for it"}
	if !slices.Equal(got, want) {
		t.Errorf("broken = %q, want %q", got, want)
	}
}

// llms.txt names every page for users, and the index of this folder every page once. configuration.md names those of
// its folder.
func TestIndex(t *testing.T) {
	var index, menu, blocks string
	for _, p := range pages(t) {
		switch p.name {
		case "llms.txt":
			index = p.text
		case "docs/README.md":
			_, menu, _ = strings.Cut(p.text, "\n\n")
		case "docs/configuration.md":
			blocks = p.text
		}
	}
	for _, p := range pages(t) {
		if strings.HasPrefix(p.name, "docs/") && !strings.Contains(index, "]("+p.name+")") {
			t.Errorf("llms.txt does not name %s", p.name)
		}
		switch name, ok := strings.CutPrefix(p.name, "docs/"); {
		case !ok || name == "README.md":
		case strings.HasPrefix(name, "configuration/"):
			if !strings.Contains(blocks, "]("+name) {
				t.Errorf("docs/configuration.md does not name %s", name)
			}
		case strings.Count(menu, "]("+name+")") != 1:
			t.Errorf("docs/README.md does not name %s once", name)
		}
	}
}
