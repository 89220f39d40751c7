package streamable

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// script is a server that shakes hands and leaves the rest to its test.
type script struct {
	*httptest.Server
	session  string // the id that it gives
	revision string
	// post answers a request but initialize, get a GET, note what has no answer;
	// nil means 405 to a GET and 202 to a note.
	post func(w http.ResponseWriter, r *http.Request, id string)
	get  http.HandlerFunc
	note http.HandlerFunc
	// begin answers initialize; nil means that it succeeds.
	begin func(w http.ResponseWriter, r *http.Request, id string)

	mu   sync.Mutex // guards the rest
	seen []recorded
	more chan struct{} // closed when there is one more
}

// recorded is a request that a script has seen.
type recorded struct {
	http, method, body string
	header             http.Header
}

// line makes a recorded request easy to compare.
func (r recorded) line() string { return strings.TrimSpace(r.http + " " + r.method) }

const agreed = `{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}`

func newScript(t testing.TB, s *script) *script {
	s.more = make(chan struct{})
	if s.revision == "" {
		s.revision = "2025-11-25"
	}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var t told
	_ = json.Unmarshal(body, &t)
	s.mu.Lock()
	s.seen = append(s.seen, recorded{http: r.Method, method: t.Method, body: string(body), header: r.Header.Clone()})
	close(s.more)
	s.more = make(chan struct{})
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
	case r.Method == http.MethodGet && s.get != nil:
		s.get(w, r)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case t.Method == "initialize" && s.begin != nil:
		s.begin(w, r, string(t.ID))
	case t.Method == "initialize":
		if s.session != "" {
			w.Header().Set("Mcp-Session-Id", s.session)
		}
		plainly(w, string(t.ID), fmt.Sprintf(agreed, s.revision))
	case (t.ID == nil || t.Method == "") && s.note != nil:
		s.note(w, r)
	case t.ID == nil || t.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		s.post(w, r, string(t.ID))
	}
}

// plainly answers with a result as JSON.
func plainly(w http.ResponseWriter, id, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// requests returns what the script has seen.
func (s *script) requests() []recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// wait waits until the script has seen n requests of that line.
func (s *script) wait(t testing.TB, n int, line string) []recorded {
	t.Helper()
	for {
		s.mu.Lock()
		more := s.more
		var found []recorded
		for _, r := range s.seen {
			if r.line() == line {
				found = append(found, r)
			}
		}
		s.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("still waiting for %s", line)
		}
	}
}

// connect opens a connection to the script.
func (s *script) connect(t testing.TB, o conn.Options) (bridge.Upstream, *adaptertest.Client) {
	t.Helper()
	rest := &adaptertest.Client{}
	return adaptertest.Open(t, adapter(t, s.URL, nil, o), rest), rest
}

// ask is a call that a script answers.
const ask = `{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"_meta":{"progressToken":"t"}}}`

// events begins a stream.
func events(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush(w)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
