package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// ask makes a request of the page's handler.
func ask(t *testing.T, h http.Handler, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	var from io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		from = z
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var references = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// What the shell names is there, by relative addresses, and is kept by browsers until
// its hash is another (O-002).
func TestAssets(t *testing.T) {
	h := Handler()
	shell := ask(t, h, "GET", "/")
	text := body(t, shell)
	if shell.StatusCode != 200 || shell.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(shell.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("/ = %d, %v", shell.StatusCode, shell.Header)
	}
	found := references.FindAllStringSubmatch(text, -1)
	if len(found) != 3 {
		t.Errorf("the shell names %q, want a program, styles and an icon", found)
	}
	for _, m := range found {
		path := m[1]
		if strings.HasPrefix(path, "/") || strings.Contains(path, ":") || strings.Contains(path, "..") {
			t.Errorf("the shell names %q: only relative addresses hold behind any proxy", path)
		}
		one := ask(t, h, "GET", "/"+path)
		plain, tag := body(t, one), one.Header.Get("ETag")
		if one.StatusCode != 200 || !strings.Contains(one.Header.Get("Cache-Control"), "immutable") || tag == "" || plain == "" {
			t.Errorf("%s = %d, %v", path, one.StatusCode, one.Header)
		}
		zipped := ask(t, h, "GET", "/"+path, "Accept-Encoding", "br, gzip")
		if got := body(t, zipped); zipped.Header.Get("Content-Encoding") != "gzip" || got != plain || zipped.Header.Get("ETag") == tag {
			t.Errorf("%s compressed: %v, the same text: %t", path, zipped.Header, got == plain)
		}
		if refused := ask(t, h, "GET", "/"+path, "Accept-Encoding", "gzip;q=0"); refused.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed for a client that does not want it", path)
		}
		if again := ask(t, h, "GET", "/"+path, "If-None-Match", `"x", W/`+tag); again.StatusCode != http.StatusNotModified || body(t, again) != "" {
			t.Errorf("%s again = %d, want 304", path, again.StatusCode)
		}
		if again := ask(t, h, "GET", "/"+path, "If-None-Match", `"x"`); again.StatusCode != 200 {
			t.Errorf("%s with another tag = %d, want 200", path, again.StatusCode)
		}
		if head := ask(t, h, "HEAD", "/"+path); body(t, head) != "" || head.Header.Get("Content-Length") != one.Header.Get("Content-Length") {
			t.Errorf("HEAD %s: %v", path, head.Header)
		}
	}
}

// The headers stand on every answer, also on those that say no (O-003).
func TestHeaders(t *testing.T) {
	h := Handler()
	program := references.FindAllStringSubmatch(body(t, ask(t, h, "GET", "/")), -1)[2][1]
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 200}, {"HEAD", "/", 200}, {"GET", "/" + program, 200}, {"POST", "/", 405}, {"GET", "/nothing", 404}, {"GET", "/assets/app.js", 404},
		{"GET", "/assets/0/app.js", 404}, {"GET", "/assets/../console.go", 404}, {"GET", "/assets/", 404}, {"DELETE", "/nothing", 405},
	} {
		r := ask(t, h, tc.method, tc.path)
		if r.StatusCode != tc.status {
			t.Errorf("%s %s = %d, want %d", tc.method, tc.path, r.StatusCode, tc.status)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy":    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s %s: %s = %q, want %q", tc.method, tc.path, name, got, want)
			}
		}
		if kept := r.Header.Get("Cache-Control") != "no-store"; kept != (tc.path == "/"+program) {
			t.Errorf("%s %s: Cache-Control = %q", tc.method, tc.path, r.Header.Get("Cache-Control"))
		}
	}
}

// The whole page is at most 70 KB on the wire.
func TestWireSize(t *testing.T) {
	sum := 0
	for _, a := range made() {
		sum += len(a.zipped())
	}
	if sum > 70<<10 {
		t.Errorf("the page takes %d bytes on the wire, more than 70 KB", sum)
	}
	t.Logf("%d bytes on the wire", sum)
}

// What servers say never becomes markup or a program; and the page asks nobody but
// the bridge (O-004).
func TestNoMarkup(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|dangerouslySet|\beval\b|new Function|\bimport\(|<iframe|<style|javascript:`)
	allowed := regexp.MustCompile(`@\w+ .*import\('\./[\w-]+\.js'\)`) // of types, in comments
	foreign := regexp.MustCompile(`(?:https?:)?//[\w.-]+\.\w`)
	n := 0
	err := filepath.WalkDir("assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		for i, line := range strings.Split(string(text), "\n") {
			if m := forbidden.FindString(allowed.ReplaceAllString(line, "")); m != "" {
				t.Errorf("%s:%d has %q", path, i+1, m)
			}
			if m := foreign.FindString(line); m != "" && !strings.HasPrefix(m, "http://www.w3.") && !strings.Contains(line, "//"+" ") && !strings.Contains(line, "such as http") {
				t.Errorf("%s:%d names %q: the page asks nobody but the bridge", path, i+1, m)
			}
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("looked at %d files: %v", n, err)
	}
	for _, bad := range []string{"x.innerHTML = y", "eval(x)", "import('./x.js')"} {
		if !forbidden.MatchString(bad) {
			t.Errorf("%q is not seen", bad)
		}
	}
}

// The modules' own tests, by Node (O-001, O-020).
func TestModules(t *testing.T) {
	tests, err := filepath.Glob("testdata/*.test.mjs")
	if err != nil || len(tests) < 4 {
		t.Fatalf("found the tests %q: %v", tests, err)
	}
	if out, err := exec.Command(programtest.Need(t, "node"), append([]string{"--test"}, tests...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What is sent is a script without faults of syntax.
func TestProgram(t *testing.T) {
	name := filepath.Join(t.TempDir(), "app.mjs") // a module, for node
	text, err := os.ReadFile("served/app.js")
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(programtest.Need(t, "node"), "--check", name).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What internal/sanitize hides, the page hides too. It also shows what is invisible but
// acts on nothing: on a page, people read what servers tell models (O-005).
func TestHidden(t *testing.T) {
	script := `import { visible } from './assets/text.js';
		const found = [];
		for (let c = 0; c < 0x110000; c++) {
			if (c >= 0xd800 && c < 0xe000) continue;
			const s = String.fromCodePoint(c);
			if (visible(s) !== s) found.push(c);
		}
		console.log(JSON.stringify(found));`
	out, err := exec.Command(programtest.Need(t, "node"), "--input-type=module", "-e", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[rune]bool{}
	for _, n := range regexp.MustCompile(`\d+`).FindAllString(string(out), -1) {
		var r rune
		for _, d := range n {
			r = r*10 + d - '0'
		}
		shown[r] = true
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		s := string(r)
		hides := sanitize.Text(s) != s
		switch {
		case r >= 0xd800 && r < 0xe000:
		case hides && !shown[r]:
			t.Errorf("%U is hidden for internal/sanitize, not for the page", r)
		case shown[r] && !hides && !unicode.In(r, unicode.Cf, unicode.Mn, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && !(r >= 0xe0000 && r < 0xe1000 || r == 0x2065):
			t.Errorf("%U is shown as a mark, though it is a character like others", r)
		}
	}
	if len(shown) < 100 {
		t.Errorf("the page shows %d characters as marks: too few", len(shown))
	}
}
