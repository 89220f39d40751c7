package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

const petsDocument = `openapi: 3.0.3
info: { title: Pets, version: "1" }
components: { securitySchemes: { key: { type: apiKey, in: query, name: token } } }
security: [{ key: [] }]
paths:
  /pets/{id}:
    get:
      operationId: getPet
      summary: Get a pet
      parameters:
        - { name: id, in: path, required: true, schema: { type: integer } }
        - { name: fields, in: query, schema: { type: array, items: { type: string } } }
      responses: { "200": { description: OK } }
    get2: {}
  /broken:
    get: { operationId: broken, parameters: 7 }
`

// An operation that is lost is not passed over.
func TestCheckLost(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", "")
	document := filepath.Join(filepath.Dir(path), "pets.yaml")
	text := petsDocument + "  /gone: { $ref: gone.yaml }\n  /wrong:\n    post: 7\n"
	write(t, document, text)
	code, stdout, stderr := in(t, "check", "-c", path)
	want := path + `: server "pets": rest: 2 operations cannot be used, as the warnings say: /gone, POST /wrong; mend the document, or leave them out by expose` + "\n"
	if code != exit.Usage || !strings.Contains(stderr, want) || !strings.Contains(stdout, "warning: pets.yaml:17: ") || !strings.Contains(stdout, path+" loses operations: 1 server") || strings.Contains(stdout, "is good") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s\nwant\n%s", code, stdout, stderr, want)
	}
	path = pets(t, "https://pets.example.com/v1", "      expose: [all, not /gone, not POST]\n")
	write(t, filepath.Join(filepath.Dir(path), "pets.yaml"), text)
	says(t, 0, " is good: ", "*", "check", "-c", path)
}

// A document without operations is not good.
func TestCheckEmpty(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", "")
	write(t, filepath.Join(filepath.Dir(path), "pets.yaml"), "openapi: 3.1.0\ncomponents: { securitySchemes: { key: { type: apiKey, in: query, name: token } } }\npaths: {}\n")
	code, stdout, stderr := in(t, "check", "-c", path)
	if code != exit.Usage || !strings.Contains(stderr, `server "pets": rest: the document has no operations`) || strings.Contains(stdout, "is good") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
	}
}

// Patterns and names of the server that are about none of the API's tools are reported, with the line of their key.
func TestCheckIdleNames(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", "    tools:\n      deny: [getPte, \"*oken\"]\n      rename: { brokn: whole }\n      allow: [\"*\", none_*]\n")
	code, stdout, stderr := in(t, "check", "-c", path)
	var got []string
	for line := range strings.Lines(stdout) {
		if _, text, ok := strings.Cut(line, "bridge.yaml:"); ok && strings.Contains(line, "about no tool") {
			got = append(got, text)
		}
	}
	want := []string{
		`10: server "pets": tools: allow: "none_*" is about no tool` + "\n",
		`8: server "pets": tools: deny: "getPte" is about no tool: did you mean getPet?` + "\n",
		`9: server "pets": tools: rename: "brokn" is about no tool: did you mean broken?` + "\n",
	}
	if code != 0 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("exit code %d, warnings\n%s\nwant\n%s\nstdout\n%s\nstderr\n%s", code, got, want, stdout, stderr)
	}
}

// What check refuses because of a document, serve and connect refuse in the same words.
func TestServeMistakes(t *testing.T) {
	const base = "      base_url: https://pets.example.com/v1\n"
	for _, test := range []struct{ name, document, api string }{
		{"typos", petsDocument, base + "      tools:\n        getPets: off\n        getPet: { args: { feilds: off } }\n"},
		{"a broken document", "openapi: 3.0.3\npaths: [\n", base},
		{"a document without servers", petsDocument, ""},
		{"no document", "", base},
		{"no overlay", petsDocument, base + "      overlays: [./fix.yaml]\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := file(t, "bridge.yaml", "listen: 127.0.0.1:0\nservers:\n  good: { stdio: { command: cat } }\n  pets:\n    rest:\n      openapi: ./pets.yaml\n"+test.api)
			if test.document != "" {
				write(t, filepath.Join(filepath.Dir(path), "pets.yaml"), test.document)
			}
			code, _, want := in(t, "check", "-c", path)
			if code != exit.Usage || !strings.Contains(want, path+":") {
				t.Fatalf("check: exit code %d, stderr\n%s", code, want)
			}
			for _, command := range []string{"serve", "connect"} {
				if code, stdout, stderr := untilServed(t, command, "-c", path); code != exit.Usage || stdout != "" || !strings.Contains("\n"+stderr, "\n"+want) || strings.Contains(stderr, "ERROR") {
					t.Errorf("%s: exit code %d, stdout\n%s\nstderr\n%s\nwant\n%s", command, code, stdout, stderr, want)
				}
			}
		})
	}
}

// untilServed runs a command until it ends or prints something, which ends it.
func untilServed(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, toOut := io.Pipe()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, toOut, &log)
		toOut.Close()
	}()
	first := make([]byte, 1)
	n, _ := out.Read(first)
	stop()
	rest, _ := io.ReadAll(out)
	return <-ended, string(first[:n]) + string(rest), log.String()
}

// pets writes a configuration beside its document, and returns its path.
func pets(t *testing.T, base, more string) string {
	t.Helper()
	path := file(t, "bridge.yaml", fmt.Sprintf("servers:\n  pets:\n    rest:\n      openapi: ./pets.yaml\n      base_url: %s\n      auth: { value: top-secret-key }\n%s", base, more))
	write(t, filepath.Join(filepath.Dir(path), "pets.yaml"), petsDocument)
	return path
}

// check reads the documents of HTTP APIs, and says what becomes of them.
func TestCheckREST(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", "  far:\n    rest: { openapi: \"https://user.example.com/api.json?key=secret\" }\n")
	out := says(t, 0, "*", "", "check", "-c", path)
	contains(t, out,
		"is good: 2 servers", "warning: pets.yaml:16: ",
		"  pets  rest https://pets.example.com/v1, share: session, prefix: pets__\n        2 tools, ", " bytes in a list, mode: tools, 1 warning\n",
		"  far   rest https://user.example.com/api.json, share: session, prefix: far__\n        its document is at a URL, and was not read; if it is on the internet, servers that it names in a private network or on this machine need base_url or trusted\n",
	)
	if strings.Contains(out, "secret") {
		t.Errorf("a secret is shown:\n%s", out)
	}

	path = pets(t, "https://pets.example.com", "      tools:\n        getPets: off\n        getPet:\n          args: { id: off, feilds: { about: x } }\n      expose: [all, not delPet]\n  gone:\n    rest: { openapi: ./gone.yaml }\n")
	contains(t, says(t, exit.Usage, "", "*", "check", "-c", path),
		path+`:8: server "pets": rest: tools: getPets: the document has no such operation, and a tool of your own needs a request: did you mean "getPet"?`+"\n",
		path+`:10: server "pets": rest: tools: getPet: args: id: is required: it cannot be off; give it a value`+"\n",
		path+`:10: server "pets": rest: tools: getPet: args: feilds: GET /pets/{id} has no such argument: did you mean fields?`+"\n",
		path+`:11: server "pets": rest: expose: "not delPet" matches no operation, so it excludes none: did you mean "not getPet"?`+"\n",
		path+`:13: server "gone": rest: openapi is "./gone.yaml": does not exist`,
	)
}

// check says why a tool is as it is, and shows no secret.
func TestCheckTools(t *testing.T) {
	t.Setenv("PETS_WORD", "top-secret-word")
	path := pets(t, "https://pets.example.com", `      attempts: 2
      tools:
        broken: off
        getPet:
          name: pet
          about: About ${PETS_WORD}.
          timeout: 5s
          cache: 60s
          headers: { X-Word: "${PETS_WORD} {id}" }
          args:
            fields: { as: only, default: [name] }
        find:
          request: POST /find
          args: { text: string }
          body: { q: "{text}", word: "${PETS_WORD}" }
`)
	far := file(t, "far.yaml", "servers: { far: { rest: { openapi: \"https://user.example.com/api.json\" } } }\n")
	says(t, exit.Usage, "", `no tool of an HTTP API is called "*"`, "check", "-c", far, "--tools", "*")
	code, stdout, stderr := in(t, "check", "-c", path, "--tools", "*")
	want := `
  none (broken)
    off  bridge.yaml:9  the operation is not a tool

  pet (getPet)
    name           bridge.yaml:11                pet
    request        pets.yaml:7                   GET /pets/{id}
    title          pets.yaml:7                   Get a pet
    description    bridge.yaml:12                About ${PETS_WORD}.
    hints          generated of GET              read-only: true, destructive: false, idempotent: true
    argument id    pets.yaml:11                  path id, required, {"type":"integer"}
    argument only  pets.yaml:12, bridge.yaml:17  query fields, {"type":"array","items":{"type":"string"},"default":["name"]}
    header X-Word  bridge.yaml:15                ${PETS_WORD} {id}
    timeout        bridge.yaml:13                5s
    retry          as for the API                2 attempts
    cache          bridge.yaml:14                as the answers allow, otherwise 1m0s

  find
    name           bridge.yaml:18     find
    request        bridge.yaml:19     POST /find
    description    generated          POST /find
    hints          generated of POST  read-only: false, destructive: true, idempotent: false
    argument text  bridge.yaml:20     required, {"type":"string"}
    body.q         bridge.yaml:21     "{text}"
    body.word      bridge.yaml:21     "${PETS_WORD}"
    timeout        as for the API     5m0s
    retry          generated          none: a POST is not made twice
`
	if code != 0 || stderr != "" || !strings.HasSuffix(stdout, want) {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s\nwant\n%s", code, stdout, stderr, want)
	}
	for pattern, want := range map[string]string{"getPet": "\n  pet (getPet)\n", "f*d": "\n  find\n", "*in*": "\n  find\n"} {
		if stdout := says(t, 0, want, "", "check", "-c", path, "--tools", pattern); strings.Count(stdout, "    name  ") != 1 {
			t.Errorf("%s:\n%s", pattern, stdout)
		}
	}
	says(t, exit.Usage, "*", `no tool of an HTTP API is called "x*in*"`, "check", "-c", path, "--tools", "x*in*")
}

// check says which rule has set what.
func TestCheckRules(t *testing.T) {
	path := pets(t, "https://pets.example.com", `      rules:
        - match: { path: /pets/** }
          name: "my_{name}"
          timeout: 7s
          args: { fields: off }
        - { match: { method: GET }, cache: 1m, output: off }
      tools:
        getPet: { about: A pet., cache: off }
`)
	code, stdout, stderr := in(t, "check", "-c", path, "--tools", "my_*")
	want := `
  my_getPet (getPet)
    name                bridge.yaml:9 (rule 1)   my_getPet
    request             pets.yaml:7              GET /pets/{id}
    title               pets.yaml:7              Get a pet
    description         bridge.yaml:14           A pet.
    hints               generated of GET         read-only: true, destructive: false, idempotent: true
    argument id         pets.yaml:11             path id, required, {"type":"integer"}
    no argument fields  bridge.yaml:11 (rule 1)  off
    timeout             bridge.yaml:10 (rule 1)  7s
    retry               default                  3 attempts
    cache               bridge.yaml:14           off
    output              bridge.yaml:12 (rule 2)  no schema: off
`
	if code != 0 || stderr != "" || !strings.HasSuffix(stdout, want) {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s\nwant\n%s", code, stdout, stderr, want)
	}
	path = pets(t, "https://pets.example.com", "      rules:\n        - match: { tag: pets }\n          timeout: 7s\n        - match: { method: GET }\n          args: { feilds: off }\n")
	contains(t, says(t, exit.Usage, "*", "*", "check", "-c", path),
		path+`:8: server "pets": rest: rules: item 1: no exposed operation matches it`+"\n",
		path+`:11: server "pets": rest: rules: item 2: args: feilds: no operation that the rule fits has a parameter of that name: did you mean fields?`+"\n",
	)
}

// An HTTP API is looked at and tried like any other server, and a dry run sends
// nothing.
func TestREST(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"target":%q}`, r.URL.RequestURI())
	}))
	defer api.Close()
	path := pets(t, api.URL, "      tools: { find: { request: \"POST /find\", args: { text: string } } }\n    tools: { rename: { getPet: pet } }\n  files: { stdio: { command: \""+os.Args[0]+"\" } }\n")
	for _, test := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts
		asked          int32
	}{
		{"tools", []string{"tools", "pets"}, 0, "pet     read-only    Get a pet", "", 0},
		{"call", []string{"call", "pets", "pet", "id=7", "fields=a", "fields=b"}, 0, `/pets/7?fields=a&fields=b&token=***`, "", 1},
		{"dry run", []string{"call", "pets", "pet", "id=7", "fields=a b", "--dry-run"}, 0, "GET " + api.URL + "/pets/7?fields=a%20b&token=***\n", "", 0},
		{"dry run with a body", []string{"call", "pets", "find", "text=x", "--dry-run"}, 0, "\n\n{\"text\":\"x\"}\n", "", 0},
		{"dry run with JSON", []string{"call", "pets", "pet", "--json", `{"id":12345678901234567890}`, "--dry-run"}, 0, "/pets/12345678901234567890?", "", 0},
		{"dry run of nothing", []string{"call", "pets", "pets", "--dry-run"}, exit.Usage, "", `no tool "pets"`, 0},
		{"dry run with wrong arguments", []string{"call", "pets", "pet", "--json", `{"id":"x"}`, "--dry-run"}, exit.Usage, "", "id", 0},
		{"dry run of another kind", []string{"call", "files", "x", "--dry-run"}, exit.Usage, "", "--dry-run is for HTTP APIs", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked.Store(0)
			says(t, test.code, test.stdout, test.stderr, append(test.args, "-c", path)...)
			if got := asked.Load(); got != test.asked {
				t.Errorf("the API was asked %d times, want %d", got, test.asked)
			}
		})
	}
}

// A failed call of an API tells the operator where the request went. The exit code is that of a server
// that cannot be reached if nothing was sent.
func TestCallWhere(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	doc := filepath.Join(filepath.Dir(pets(t, api.URL, "")), "pets.yaml")
	code, _, stderr := in(t, "call", doc, "getPet", "id=1", "--base-url", api.URL+"/wrong")
	if want := `the tool "getPet" answered with an error; the request was GET ` + api.URL + "/wrong/pets/1\n"; code != exit.Answer || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr\n%s\nwant %s", code, stderr, want)
	}
	api.Close()
	code, _, stderr = in(t, "call", doc, "getPet", "id=1", "--base-url", api.URL)
	if want := "the API could not be reached; the request was GET " + api.URL + "/pets/1\n"; code != exit.Server || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr\n%s\nwant %s", code, stderr, want)
	}
}

// A document that cannot be parsed is refused with its line, not as something else.
func TestBrokenDocument(t *testing.T) {
	doc := file(t, "api.yaml", "openapi: 3.0.0\npaths:\n  /a: { get: {}\n  /b: {}\n")
	for _, args := range [][]string{{"tools", doc}, {"run", doc}} {
		if code, _, stderr := in(t, args...); code == 0 || !strings.Contains(stderr, "api.yaml: line ") {
			t.Errorf("%s: exit code %d, stderr %s", args[0], code, stderr)
		}
	}
}
