package adaptertest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const page = "../../docs/interop.md"

// edge is an odd thing in a message or its headers, and what each wire does with it. It is a row of the page.
type edge struct {
	odd string
	// text makes an odd text of a message; nil means that it stays.
	text func(m string) string
	// answer and ask are an answer, whose id is $id, and the id of a request, where these are odd.
	answer, ask string
	// header are headers of HTTP, which come with the body.
	header map[string]string
	// cells say "taken", or how it is refused: by servers over stdio, HTTP+SSE and Streamable HTTP, and then by clients.
	// An empty one cannot be.
	cells [6]string
	says  string // the message of each refusal
}

const (
	taken   = "taken"
	invalid = "`upstream_invalid`"
	plain   = "application/json"
)

func around(before, after string) func(string) string {
	return func(m string) string { return before + m + after }
}

func zipped(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

var edges = []edge{
	{
		odd:   "a byte order mark before a message",
		text:  around("\xef\xbb\xbf", ""),
		cells: [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:   "control characters, or escape sequences of a terminal, around it",
		text:  around("\x1b[?25l\x1b]0;title\x07\x00", "\x1b[0m\x00"),
		cells: [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:   "blank lines, spaces and CR around it",
		text:  around(" \t\r\n\r\n", "\r\n \n"),
		cells: [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:   "text before it",
		text:  around("ready: ", ""),
		cells: [6]string{invalid, invalid, invalid, "-32700", "400", "400"},
		says:  "not JSON: text before the message at byte 0",
	},
	{
		odd:   "text behind it",
		text:  around("", " done"),
		cells: [6]string{taken, taken, taken, "-32700", "400", "400"},
		says:  "text behind the message",
	},
	{
		odd:   "two messages in its place",
		text:  around(`{"jsonrpc":"2.0","method":"notifications/odd"}`, ""),
		cells: [6]string{taken, taken, taken, "-32700", "400", "400"},
		says:  "text behind the message",
	},
	{
		odd:   "bytes that are not UTF-8",
		text:  func(m string) string { return strings.Replace(m, "{}", "{\"x\":\"\xff\"}", 1) },
		cells: [6]string{taken, taken, taken, "-32700", "400", "400"},
		says:  "not JSON: it is not UTF-8",
	},
	{
		odd:    "`text/json`, `application/json-rpc` or `application/…+json` as the media type",
		header: map[string]string{"Content-Type": "text/json; charset=utf-8"},
		cells:  [6]string{"", taken, taken, "", taken, taken},
	},
	{
		odd:    "the media type twice in its header",
		header: map[string]string{"Content-Type": plain + ", " + plain},
		cells:  [6]string{"", taken, taken, "", taken, taken},
	},
	{
		odd:    "`text/plain`, or no media type",
		header: map[string]string{"Content-Type": "text/plain"},
		cells:  [6]string{"", taken, taken, "", "415", "415"},
		says:   "Content-Type must be application/json",
	},
	{
		odd:    "a body in gzip",
		text:   zipped,
		header: map[string]string{"Content-Type": plain, "Content-Encoding": "gzip"},
		cells:  [6]string{"", taken, taken, "", "415", "415"},
		says:   "Content-Encoding",
	},
	{
		odd:    "a body that says gzip and is none",
		header: map[string]string{"Content-Type": plain, "Content-Encoding": "gzip"},
		cells:  [6]string{"", invalid, invalid, "", "415", "415"},
		says:   "gzip",
	},
	{
		odd:    "a body in another coding",
		header: map[string]string{"Content-Type": plain, "Content-Encoding": "br"},
		cells:  [6]string{"", invalid, invalid, "", "415", "415"},
		says:   "Content-Encoding",
	},
	{
		odd:    "a charset as the coding of a body",
		header: map[string]string{"Content-Type": plain, "Content-Encoding": "UTF-8"},
		cells:  [6]string{"", taken, taken, "", taken, taken},
	},
	{
		odd:    "`Mcp-Session-Id` twice, the same",
		header: map[string]string{"Content-Type": plain, "Mcp-Session-Id": "$session\n$session"},
		cells:  [6]string{"", "", "", "", "", taken},
	},
	{
		odd:    "`Mcp-Session-Id` twice, with different values",
		header: map[string]string{"Content-Type": plain, "Mcp-Session-Id": "$session\nother"},
		cells:  [6]string{"", "", "", "", "", "400"},
		says:   "appears twice, with different values",
	},
	{
		odd:    "an answer with the id `\"1\"` for 1",
		answer: `{"jsonrpc":"2.0","id":"$id","result":{"taken":true}}`,
		cells:  [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:    "an answer with the id `1.0` or `1e0` for 1",
		answer: `{"jsonrpc":"2.0","id":$id.0,"result":{"taken":true}}`,
		cells:  [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:    "an error that is a text, or has no integer code",
		answer: `{"jsonrpc":"2.0","id":$id,"error":"taken"}`,
		cells:  [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:    "an error with the id null",
		answer: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"taken"}}`,
		cells:  [6]string{taken, taken, taken, "", "", ""},
	},
	{
		odd:   "a request whose id is a text of 10,000 characters",
		ask:   `"` + strings.Repeat("x", 10_000) + `"`,
		cells: [6]string{taken, taken, taken, taken, taken, taken},
	},
	{
		odd:   "a request with the id `7.0`",
		ask:   "7.0",
		cells: [6]string{taken, taken, taken, "-32600", "400", "400"},
		says:  "id must be a string or an integer",
	},
	{
		odd:   "a request with an id of 400 digits",
		ask:   strings.Repeat("7", 400),
		cells: [6]string{taken, taken, taken, "-32600", "400", "400"},
		says:  "id must be a string or an integer",
	},
}

// wires are the columns of the cells. Each returns what became of a message, and the text of a refusal.
var wires = [6]struct {
	name string
	try  func(t *testing.T, at int, e edge) (cell, text string)
}{
	{"a server, stdio", fromStdio}, {"a server, HTTP+SSE", fromSSE}, {"a server, Streamable HTTP", fromStreamable},
	{"a client, stdio", toStdio}, {"a client, HTTP+SSE", toSSE}, {"a client, Streamable HTTP", toStreamable},
}

// Each wire does with each odd thing what the page says.
func TestEdges(t *testing.T) {
	var table strings.Builder
	table.WriteString("| |")
	for _, w := range wires {
		table.WriteString(" " + w.name + " |")
	}
	table.WriteString(" a refusal says |\n| --- |" + strings.Repeat(" --- |", len(wires)+1) + "\n")
	for at, e := range edges {
		fmt.Fprintf(&table, "| %s |", e.odd)
		for i, w := range wires {
			if e.cells[i] == "" {
				table.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&table, " %s |", e.cells[i])
			t.Run(e.odd+"/"+w.name, func(t *testing.T) {
				if i < 3 { // the others are bubbles
					t.Parallel()
				}
				if got, text := w.try(t, at, e); got != e.cells[i] || got != taken && !strings.Contains(text, e.says) {
					t.Errorf("it is %s with %q, want %s with %q", got, text, e.cells[i], e.says)
				}
			})
		}
		fmt.Fprintf(&table, " %s |\n", e.says)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+table.String()+"\n") {
		t.Errorf("%s has not this table:\n%s", page, table.String())
	}
}

// The servers.

const edgeVariable = "BRIDGE_TEST_EDGE"

func TestMain(m *testing.M) {
	if at, err := strconv.Atoi(os.Getenv(edgeVariable)); err == nil {
		serveStdio(edges[at])
		return
	}
	os.Exit(m.Run())
}

// reply returns what the server of e says to a message, in order. odd reports whether it is the odd text.
func (e edge) reply(line string) (text string, odd bool) {
	m := gjson.Parse(line)
	id, method := m.Get("id").Raw, m.Get("method").Str
	switch {
	case method == "initialize":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, id), false
	case method == "server/discover":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}}`, id), false
	case method == "tools/call" && e.ask != "":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, e.ask), true
	case method == "tools/call":
		answer := e.answer
		if answer == "" {
			answer = `{"jsonrpc":"2.0","id":$id,"result":{"taken":{}}}`
		}
		answer = strings.ReplaceAll(answer, "$id", id)
		if e.text != nil {
			answer = e.text(answer)
		}
		return answer, true
	case method == "" && id == e.ask: // the bridge has answered: the call is over
		return `{"jsonrpc":"2.0","id":$call,"result":{"taken":true}}`, false
	}
	return "", false
}

func serveStdio(e edge) {
	lines := bufio.NewReader(os.Stdin)
	call := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if gjson.Get(line, "method").Str == "tools/call" {
			call = gjson.Get(line, "id").Raw
		}
		if text, _ := e.reply(line); text != "" {
			fmt.Println(strings.ReplaceAll(text, "$call", call))
		}
	}
}

func event(text string) string {
	return "data: " + strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ").Replace(text) + "\n\n"
}

// hosted is a server over HTTP.
type hosted struct {
	edge
	events bool          // Streamable HTTP: it answers calls with events
	asked  chan struct{} // closed when the bridge has answered the server's request
	said   chan string   // HTTP+SSE: what its stream has yet to say

	mu   sync.Mutex // guards the rest
	call string
}

func (h *hosted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: /post\n\n")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case text := <-h.said:
				_, _ = io.WriteString(w, text)
			case <-r.Context().Done():
				return
			}
		}
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	if gjson.GetBytes(body, "method").Str == "tools/call" {
		h.call = gjson.GetBytes(body, "id").Raw
	}
	call := h.call
	h.mu.Unlock()
	text, odd := h.reply(string(body))
	text = strings.ReplaceAll(text, "$call", call)
	switch {
	case odd && h.header != nil:
		for name, value := range h.header {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, text)
	case r.URL.Path == "/post":
		w.WriteHeader(http.StatusAccepted)
		if text != "" {
			h.said <- event(text)
		}
	case odd && h.ask != "":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event(text))
		_ = http.NewResponseController(w).Flush()
		<-h.asked
		_, _ = io.WriteString(w, event(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"taken":true}}`, call)))
	case gjson.GetBytes(body, "method").Str == "":
		close(h.asked)
		w.WriteHeader(http.StatusAccepted)
	case text == "":
		w.WriteHeader(http.StatusAccepted)
	case odd && h.events:
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event(text))
	default:
		w.Header().Set("Content-Type", plain)
		_, _ = io.WriteString(w, text)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// called calls a server and returns what became of its answer.
func called(t *testing.T, a bridge.Adapter, from *bridge.Caller) (cell, text string) {
	up := adaptertest.OpenFor(t, a, from, &adaptertest.Client{})
	o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
	text = o.Answer
	if o.Err != nil {
		text = o.Err.Error()
	}
	switch {
	case errors.Is(o.Err, bridge.ErrInvalid), strings.Contains(text, `"bridge":"upstream_invalid"`):
		return invalid, text
	case o.Err == nil && strings.Contains(text, taken):
		return taken, text
	}
	return "lost", text
}

// eras calls a server in both eras, if it has both.
func eras(t *testing.T, e edge, open func(conn.Era) bridge.Adapter) (cell, text string) {
	cell, text = called(t, open(conn.EraLegacy), adaptertest.Caller(""))
	if e.ask == "" { // a modern server asks nothing
		if also, why := called(t, open(conn.EraModern), adaptertest.ModernCaller()); also != cell {
			return also + " in the modern era, and not in the legacy one", why
		}
	}
	return cell, text
}

func fromStdio(t *testing.T, at int, e edge) (cell, text string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return eras(t, e, func(era conn.Era) bridge.Adapter {
		return stdio.New("fake", stdio.Config{Command: self, Env: map[string]string{edgeVariable: strconv.Itoa(at), "GORACE": "atexit_sleep_ms=0"}}, conn.Options{Log: quiet, Era: era})
	})
}

func host(t *testing.T, h *hosted) remote.Config {
	h.asked, h.said = make(chan struct{}), make(chan string, 8)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return remote.Config{URL: s.URL, Proxy: "none"}
}

func fromSSE(t *testing.T, _ int, e edge) (cell, text string) {
	c := host(t, &hosted{edge: e})
	c.URL += "/sse"
	u, err := sse.NewUpstream("fake", c, conn.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return called(t, u, adaptertest.Caller(""))
}

func fromStreamable(t *testing.T, _ int, e edge) (cell, text string) {
	for _, events := range []bool{false, true} {
		got, why := eras(t, e, func(era conn.Era) bridge.Adapter {
			u, err := streamable.NewUpstream("fake", host(t, &hosted{edge: e, events: events}), conn.Options{Log: quiet, Era: era})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(u.Close)
			return u
		})
		if events && got != cell {
			return got + " as events, and not as JSON", why
		}
		cell, text = got, why
	}
	return cell, text
}

// The clients.

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	asking      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`
)

var questionID = regexp.MustCompile(`"id":(\d+),"method":"sampling/createMessage"`)

// message returns the message that the client of e sends. heard has the messages to the client so far, among them a
// question of the server.
func (e edge) message(heard string) string {
	m := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	switch {
	case e.answer != "":
		return strings.ReplaceAll(e.answer, "$id", questionID.FindStringSubmatch(heard)[1])
	case e.ask != "":
		return strings.Replace(m, "7", e.ask, 1)
	case e.text != nil:
		return e.text(m)
	}
	return m
}

// isTaken reports whether what a client has heard shows that its message was taken.
func (e edge) isTaken(heard string) bool {
	id := `"id":7,`
	switch {
	case e.answer != "":
		return strings.Contains(heard, taken)
	case e.ask != "":
		id = `"id":` + e.ask + ","
	}
	return strings.Contains(heard, id+`"result"`)
}

// published returns a bridge to one server.
func published(t *testing.T) gateway.Gateway {
	g := gateway.New(gateway.Options{Log: quiet, Servers: []gateway.ServerOptions{{Name: "fake", Adapter: &wiretest.Server{}}}})
	t.Cleanup(func() { g.Close(context.Background()) })
	return g
}

// bubble runs f in one.
func bubble(t *testing.T, f func(t *testing.T) (cell, text string)) (cell, text string) {
	synctest.Test(t, func(t *testing.T) { cell, text = f(t) })
	return cell, text
}

func toStdio(t *testing.T, _ int, e edge) (cell, text string) {
	return bubble(t, func(t *testing.T) (string, string) {
		g := published(t)
		in, input := io.Pipe()
		var out bytes.Buffer // written by Serve alone, and read when all is quiet
		served := make(chan error)
		go func() { served <- stdio.Serve(t.Context(), g, "fake", in, &out, stdio.DownstreamOptions{Log: quiet}) }()
		say := func(lines ...string) {
			for _, line := range lines {
				_, _ = io.WriteString(input, line+"\n")
				synctest.Wait()
			}
		}
		say(initialize, initialized)
		if e.answer != "" {
			say(asking)
		}
		before := out.String()
		say(e.message(before))
		heard := out.String()[len(before):]
		_ = input.Close()
		<-served
		if e.isTaken(heard) {
			return taken, heard
		}
		return gjson.Get(heard, "error.code").Raw, heard
	})
}

// posts plays a client over HTTP, whose stream has what is not the response to a POST.
func posts(t *testing.T, e edge, s *wiretest.Site, path string, stream *wiretest.Reply, headers map[string]string) (cell, text string) {
	post := func(m string, more map[string]string) *wiretest.Reply {
		all := maps.Clone(headers)
		maps.Copy(all, more)
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			pairs = append(pairs, name, strings.ReplaceAll(all[name], "$session", headers["Mcp-Session-Id"]))
		}
		r := s.Do("POST", path, m, pairs...)
		wiretest.Advance(2 * time.Second) // a slow answer becomes a stream
		return r
	}
	heard := func(replies ...*wiretest.Reply) (all string) {
		for _, r := range append(replies, stream) {
			if r != nil {
				all += r.Body()
			}
		}
		return all
	}
	post(initialized, nil)
	var asked *wiretest.Reply
	if e.answer != "" {
		asked = post(asking, nil)
	}
	r := post(e.message(heard(asked)), e.header)
	text = heard(r, asked)
	if r.Status() < 300 && e.isTaken(text) {
		return taken, text
	}
	return strconv.Itoa(r.Status()), text
}

func toSSE(t *testing.T, _ int, e edge) (cell, text string) {
	return bubble(t, func(t *testing.T) (string, string) {
		d := sse.New(published(t), sse.Options{Log: quiet})
		mux := http.NewServeMux()
		mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) { d.Stream("fake", "/messages", w, r) })
		mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) { d.Message("fake", w, r) })
		s := wiretest.NewSite(t, mux)
		stream := s.Do("GET", "/sse", "")
		t.Cleanup(stream.Leave)
		synctest.Wait()
		path := stream.Events()[0].Data
		s.Do("POST", path, initialize)
		synctest.Wait()
		return posts(t, e, s, path, stream, map[string]string{})
	})
}

func toStreamable(t *testing.T, _ int, e edge) (cell, text string) {
	return bubble(t, func(t *testing.T) (string, string) {
		d := streamable.New(published(t), streamable.Options{Log: quiet})
		t.Cleanup(d.Close)
		s := wiretest.NewSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve("fake", w, r) }))
		session := s.Do("POST", "/mcp", initialize).Wait().Header("Mcp-Session-Id")
		return posts(t, e, s, "/mcp", nil, map[string]string{"Mcp-Session-Id": session})
	})
}
