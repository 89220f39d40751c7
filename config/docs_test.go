package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// reference is the folder of the pages with the keys; the page of its name says
// how a file is written.
const reference = "../docs/configuration"

// referenceText returns all pages of the reference.
func referenceText(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob(reference + "/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%s has no pages (error %v)", reference, err)
	}
	var all strings.Builder
	for _, name := range append(pages, reference+".md") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n" + string(data))
	}
	return all.String()
}

// referenceTables are the tables of the reference: the heading before each, and its settings.
var referenceTables = []struct {
	heading  string
	settings any
}{
	{"Keys of the file", Config{}},
	{"Keys of a server", Server{}},
	{"stdio: ", stdio.Config{}},
	{"http and sse: ", remote.Config{}},
	{"oauth of a server: ", oauth.Settings{}},
	{"client: ", oauth.Client{}},
	{"rest: ", rest.Config{}},
	{"tools, prompts and resources: ", filterKeys{}},
	{"args: ", argumentKeys{}},
	{"scopes: ", Scopes{}},
	{"tls: ", TLS{}},
	{"oauth: ", OAuth{}},
	{"introspection: ", Introspection{}},
	{"front: ", Front{}},
	{"access: ", Access{}},
	{"access_log: ", AccessLog{}},
	{"cluster: ", Cluster{}},
	{"per_principal: ", limits.PerPrincipal{}},
	{"cache: ", cache.Options{}},
	{"breaker: ", breaker.Options{}},
	{"limits: ", limits.Options{}},
	{"retry: ", retry.Options{}},
}

// A row of a table of the reference.
type row struct{ standard, meaning string }

// referenceRows returns the section below a heading, with those within it, and the
// rows of its tables by key.
func referenceRows(t *testing.T, text, heading string) (section string, rows map[string]row) {
	t.Helper()
	at := regexp.MustCompile("(?m)^(#+) " + heading).FindStringSubmatchIndex(text)
	if at == nil {
		t.Fatalf("%s has no heading %q", reference, heading)
	}
	section = text[at[1]:]
	if end := regexp.MustCompile(fmt.Sprintf("(?m)^#{1,%d} ", at[3]-at[2])).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	rows = map[string]row{}
	for _, found := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| (.+?) \\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
		rows[found[1]] = row{found[2], found[3]}
	}
	return section, rows
}

// required are what a row may have in place of none.
var required = []string{"required", "one of four", "see there"}

// Every key has its row in the reference with the default of its tags, and every row has a key. go test -update writes
// the defaults.
func TestReferenceTables(t *testing.T) {
	text := referenceText(t)
	for _, test := range referenceTables {
		section, rows := referenceRows(t, text, test.heading)
		of := reflect.TypeOf(test.settings)
		for _, f := range setting.Fields(of) {
			if !f.Keyed() {
				continue
			}
			row, ok := rows[f.Key]
			delete(rows, f.Key)
			want := documented(f)
			switch {
			case ok && (row.standard == want || want == "none" && slices.Contains(required, row.standard)):
			case ok && *update:
				writeDefault(t, f.Key, row, want)
			default:
				t.Errorf("%s, %s: the row of %q has default %q, want %q", reference, test.heading, f.Key, row.standard, want)
			}
			if !regexp.MustCompile("(?m)[ {]" + f.Key + ": |^" + f.Key + ": |^ *" + f.Key + ":$").MatchString(examples(section)) {
				t.Errorf("%s, %s: no example has %q", reference, test.heading, f.Key)
			}
		}
		for _, name := range (*decoder)(nil).OtherKeys(of) { // read without a field
			delete(rows, name)
		}
		for name := range rows {
			t.Errorf("%s, %s: the row of %q is about no key", reference, test.heading, name)
		}
	}
}

// documented returns the text that the default of a field has in the reference.
func documented(f *setting.Field) string {
	switch {
	case strings.Contains(f.Usually, " "):
		return f.Usually
	case f.Usually != "":
		return "`" + f.Usually + "`"
	case f.Default.IsValid():
		return "`" + setting.Show(f.Default) + "`"
	case f.Form == "off":
		return "`off`"
	case f.Type.Kind() == reflect.Bool:
		return "`false`"
	}
	return "none"
}

// writeDefault writes the default of a key into its row.
func writeDefault(t *testing.T, key string, of row, standard string) {
	t.Helper()
	pages, err := filepath.Glob(reference + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		line := func(standard string) string { return fmt.Sprintf("\n| `%s` | %s | %s |\n", key, standard, of.meaning) }
		if now := strings.Replace(string(data), line(of.standard), line(standard), 1); now != string(data) {
			if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func blocks(text string) [][]string {
	return regexp.MustCompile("(?ms)^```(yaml|json)\n(.+?)^```$").FindAllStringSubmatch(text, -1)
}

func examples(text string) string {
	var all strings.Builder
	for _, block := range blocks(text) {
		all.WriteString(block[2])
	}
	return all.String()
}

// The messages in the reference are the real ones.
func TestReferenceMessages(t *testing.T) {
	text := "\n\n\n\nservers:\n  files:\n    stdio: { commnad: npx }\n\n    timeout: 90\n"
	_, err := Parse("bridge.yaml", []byte(text), none)
	if err == nil || !strings.Contains(referenceText(t), "```text\n"+err.Error()+"\n```") {
		t.Errorf("%s does not show what Parse says: %v", reference, err)
	}
}
