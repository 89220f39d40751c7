// Command workflow-tools is a small workflow engine for trying out the bridge. Its workflows are a calculator and a web
// search, and run when their webhooks are called. It publishes the active workflows as a catalogue of tools, and
// notifies the bridge of changes.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

type workflow struct {
	entry  string // entry of the catalogue, without the address
	run    func(in map[string]any) (any, error)
	active bool
}

// engine holds the workflows.
type engine struct {
	key              string // key that callers must send
	announce, secret string // the bridge's address for changes, and the secret for the signatures of changes

	mu        sync.Mutex // guards the active flags
	workflows map[string]*workflow
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8095", "address to listen on; port 0 picks a free one")
	key := flag.String("key", "engine-key", "what callers have to show as X-Engine-Key")
	announce := flag.String("announce", "http://127.0.0.1:8808/hooks/flows", "address that is notified of changes; empty for none")
	secret := flag.String("secret", "only-for-this-example", "what changes are signed with")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the workflows are at http://%s\n", l.Addr())
	log.Fatal(http.Serve(l, newEngine(*key, *announce, *secret)))
}

func newEngine(key, announce, secret string) http.Handler {
	e := &engine{
		key:      key,
		announce: announce,
		secret:   secret,
		workflows: map[string]*workflow{
			"calculate": {active: true, run: calculate, entry: `"title": "Calculator",
			"description": "Computes an expression of numbers, + - * / and parentheses.",
			"inputSchema": {"type": "object", "properties": {"expression": {"type": "string", "description": "such as (1 + 2) * 3.5"}}, "required": ["expression"]},
			"annotations": {"readOnlyHint": true, "openWorldHint": false}`},
			"web_search": {active: true, run: search, entry: `"title": "Web search",
			"description": "Finds pages by the words in them.",
			"inputSchema": {"type": "object", "properties": {"query": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3}}, "required": ["query"]},
			"result": "pages",
			"annotations": {"readOnlyHint": true}`},
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /catalog.json", e.shown(e.catalog))
	mux.HandleFunc("POST /webhook/{name}", e.shown(e.call))
	mux.HandleFunc("POST /workflows/{name}", e.change) // for users of the engine's own interface
	return mux
}

// shown admits only requests with the key.
func (e *engine) shown(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Engine-Key") != e.key {
			http.Error(w, "the key is missing or wrong", http.StatusUnauthorized)
			return
		}
		f(w, r)
	}
}

// catalog publishes the active workflows. The bridge sends the ETag of its copy.
func (e *engine) catalog(w http.ResponseWriter, r *http.Request) {
	var tools []string
	e.mu.Lock()
	for _, name := range []string{"calculate", "web_search"} {
		if w := e.workflows[name]; w.active {
			tools = append(tools, fmt.Sprintf("{\"name\": %q, \"request\": \"POST /webhook/%s\", %s}", name, name, w.entry))
		}
	}
	e.mu.Unlock()
	text := `{"tools": [` + strings.Join(tools, ",\n") + `]}`
	sum := sha256.Sum256([]byte(text))
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text)) // handles ETags
}

// call runs a workflow.
func (e *engine) call(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	f := e.workflows[r.PathValue("name")]
	active := f != nil && f.active
	e.mu.Unlock()
	if !active {
		http.Error(w, "there is no active workflow of this name", http.StatusNotFound)
		return
	}
	var in map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := f.run(in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a disconnected caller needs no answer
}

// change switches a workflow on or off and notifies the bridge.
func (e *engine) change(w http.ResponseWriter, r *http.Request) {
	var to struct{ Active bool }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&to); err != nil {
		http.Error(w, `send {"active": true} or {"active": false}`, http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	f := e.workflows[r.PathValue("name")]
	if f != nil {
		f.active = to.Active
	}
	e.mu.Unlock()
	if f == nil {
		http.Error(w, "there is no workflow of this name", http.StatusNotFound)
		return
	}
	if err := e.tell(); err != nil {
		http.Error(w, "changed, but the bridge was not told: "+err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, "changed")
}

// tell notifies the bridge of a change. The bridge then reads the catalogue itself. The body is empty, and the
// signature is for this empty body.
func (e *engine) tell() error {
	if e.announce == "" {
		return nil
	}
	r, err := http.NewRequest(http.MethodPost, e.announce, http.NoBody)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(e.secret))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := (&http.Client{Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var why bytes.Buffer
		_, _ = why.ReadFrom(http.MaxBytesReader(nil, res.Body, 1<<10)) // as much as arrives
		return fmt.Errorf("%s: %s", res.Status, why.String())
	}
	return nil
}
