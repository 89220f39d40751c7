package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

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
	defaults any
}{
	{"Keys of the file", Default()},
	{"Keys of a server", DefaultServer("", "")},
	// The adapter keeps its own defaults; zero stands for them.
	{"stdio: ", standardOf[stdio.Config]()},
	{"http and sse: ", standardOf[remote.Config]()},
	{"oauth of a server: ", oauth.Settings{}},
	{"client: ", oauth.Client{}},
	{"rest: ", standardOf[rest.Config]()},
	{"tools, prompts and resources: ", filterKeys{}},
	{"args: ", argumentKeys{}},
	{"scopes: ", Scopes{}},
	{"tls: ", TLS{}},
	{"oauth: ", standardOf[OAuth]()},
	{"introspection: ", standardOf[Introspection]()},
	{"front: ", Front{}},
	{"access: ", Access{}},
	{"access_log: ", AccessLog{}},
	{"cluster: ", Default().Cluster},
	// The core keeps its own defaults too.
	{"per_principal: ", standardOf[limits.PerPrincipal]()},
	{"cache: ", standardOf[cache.Options]()},
	{"breaker: ", standardOf[breaker.Options]()},
	{"limits: ", standardOf[limits.Options]()},
	{"retry: ", standardOf[retry.Options]()},
}

// standardOf returns the defaults that zero stands for.
func standardOf[T any]() T { return defaults[reflect.TypeFor[T]()].Interface().(T) }

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

// Every key has its row in the reference with its real default, and every row has a key.
func TestReferenceTables(t *testing.T) {
	text := referenceText(t)
	for _, test := range referenceTables {
		section, rows := referenceRows(t, text, test.heading)
		v := reflect.ValueOf(test.defaults)
		for _, f := range setting.Fields(v.Type()) {
			name, field := f.Key, v.FieldByIndex(f.Index)
			if name == "-" {
				continue
			}
			row, ok := rows[name]
			got := row.standard
			delete(rows, name)
			want := documented(name, field)
			if name == "url" && v.Type() == reflect.TypeFor[Introspection]() {
				want = "none" // the metadata of the issuer says it
			}
			if _, client := test.defaults.(oauth.Client); client && name == "secret" {
				want = "none" // there may be a key
			}
			if got == "required" && want == "none" {
				want = got // without a default, as a rule of the key says
			}
			if !ok || got != want {
				t.Errorf("%s, %s: the row of %q has default %q, want %q", reference, test.heading, name, got, want)
			}
			if !regexp.MustCompile("(?m)[ {]" + name + ": |^" + name + ": |^ *" + name + ":$").MatchString(examples(section)) {
				t.Errorf("%s, %s: no example has %q", reference, test.heading, name)
			}
		}
		for _, name := range (*decoder)(nil).OtherKeys(v.Type()) { // read without a field
			delete(rows, name)
		}
		for name := range rows {
			t.Errorf("%s, %s: the row of %q is about no key", reference, test.heading, name)
		}
	}
}

// documented returns the text that the default of a key has in the reference.
func documented(name string, v reflect.Value) string {
	if v.Type() == reflect.TypeFor[[]string]() && name == "servers" {
		return "none" // of an access rule
	}
	switch name {
	case "servers", "command", "url":
		return "required"
	case "redis", "secret":
		return "required"
	case "cluster":
		return "none"
	case "advertise":
		return "`listen`"
	case "stdio", "http", "sse", "rest":
		return "one of four"
	case "openapi", "base_url":
		return "see there"
	case "lists":
		return "`5s`"
	case "bytes":
		return "`" + Size(v.Int()).String() + "`"
	case "slow":
		return "none"
	case "refresh":
		return "`2s`, `5m`"
	case "idle_stop", "ping":
		return "`off`"
	case "prefix":
		return "`NAME__`"
	}
	if d, ok := v.Interface().(time.Duration); ok {
		s := d.String() // 5m0s, 1h0m0s
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return "`" + s + "`"
	}
	if v.IsZero() && v.Kind() != reflect.Bool {
		return "none"
	}
	return fmt.Sprintf("`%v`", v.Interface())
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
