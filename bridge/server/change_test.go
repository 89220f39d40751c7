package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
)

// tells is a server that is a shell, whose connections are shared by all. Its tool who tells the word by which it was
// started, and its process.
func tells(name, word string) config.Server { return shell(name, word, "/nowhere", config.ShareAll) }

// shell is a server that is a shell. What it knows is in its process: who it is, and that somebody has subscribed. Its
// tool slow has progress until the file at release is there.
func shell(name, word, release string, share gateway.Share) config.Server {
	const script = `while read -r line; do
	id=${line#*'"id":'}; id=${id%%,*}
	token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
	case $line in
	*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}},"serverInfo":{"name":"sh","version":"1"}}}';;
	*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"who","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}},{"name":"tell","inputSchema":{"type":"object"}}]}}';;
	*'"resources/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resources":[{"uri":"a://b","name":"b"}]}}';;
	*'"resources/subscribe"'*) subscribed="$subscribed yes"; echo '{"jsonrpc":"2.0","id":'$id',"result":{}}';;
	*'"name":"slow"'*)
		n=0
		until [ -e "$2" ]; do
			n=$((n+1)); echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$token',"progress":'$n'}}'; sleep 0.02
		done
		echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'$1' '$$' '$n$subscribed'"}]}}';;
	*'"name":"tell"'*)
		echo '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://b"}}'
		echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'$1' '$$'"}]}}';;
	*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'$1' '$$'"}]}}';;
	*'"id":'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}';;
	esac
done`
	s := config.DefaultServer(name, share)
	s.Era = config.EraLegacy
	s.Stdio = &config.Stdio{Command: "sh", Args: []string{"-c", script, "sh", word, release}}
	return s
}

// site is a bridge to such servers, over HTTP.
type site struct {
	*server
	url string
	t   testing.TB
}

// newSite starts a bridge, whose configuration change changes, if it is not nil.
func newSite(t testing.TB, change func(*config.Config), servers ...config.Server) *site {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	c := config.Default()
	c.Servers = servers
	if change != nil {
		change(&c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := &site{build(&c, slog.New(slog.DiscardHandler), (*server).reach), "", t}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close(context.Background())
		srv.Close()
	})
	s.url = srv.URL
	return s
}

// connect makes a client of the official SDK, with a key. changed is told of list_changed.
func (s *site) connect(path, key string, changed chan<- struct{}) *mcp.ClientSession {
	s.t.Helper()
	o := &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}}
	return s.connectWith(path, key, o)
}

func (s *site) connectWith(path, key string, o *mcp.ClientOptions) *mcp.ClientSession {
	s.t.Helper()
	keyed := &http.Client{Transport: withHeader{"Authorization", "Bearer " + key}}
	var way mcp.Transport = &mcp.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: keyed}
	if strings.HasSuffix(path, "/sse") {
		way = &mcp.SSEClientTransport{Endpoint: s.url + path, HTTPClient: keyed}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, o).Connect(s.t.Context(), way, nil)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	s.t.Cleanup(func() { _ = session.Close() })
	return session
}

// who returns what a tool says, or why it says nothing.
func who(ctx context.Context, s *mcp.ClientSession, tool string) string {
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	if err != nil {
		return err.Error()
	}
	return r.Content[0].(*mcp.TextContent).Text
}

func (s *site) get(path string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "localhost"
	s.http.Handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// What comes and goes is where it belongs: addresses, /readyz, metrics, and the
// lists of those who are told. What is wrong changes nothing.
func TestChange(t *testing.T) {
	s := newSite(t, nil, tells("one", "1"), tells("two", "2"))
	changed := make(chan struct{}, 1)
	both := s.connect("/mcp", "", changed)
	next := func() { <-changed }
	tools := func() string {
		var all []string
		for tool, err := range both.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(tool.Name, "who") {
				all = append(all, tool.Name)
			}
		}
		return strings.Join(all, " ")
	}
	if got := tools(); got != "one__who two__who" {
		t.Errorf("tools: %s", got)
	}
	twice, bad := tells("two", "2"), tells("Three", "3")
	for what, err := range map[string]error{
		"two of a name": s.Add(twice), "a name that is none": s.Add(bad), "nothing to remove": s.Remove("three"), "nothing to replace": s.Replace(bad),
		"no kind": s.Add(config.DefaultServer("three", "")),
	} {
		if err == nil {
			t.Errorf("%s is no error", what)
		}
	}
	if code, _ := s.get("/three/mcp"); code != 404 {
		t.Errorf("before it has come: %d", code)
	}
	if err := s.Add(tells("three", "3")); err != nil {
		t.Fatal(err)
	}
	next()
	if got := tools(); got != "one__who two__who three__who" {
		t.Errorf("tools: %s", got)
	}
	if got := who(t.Context(), s.connect("/three/sse", "", nil), "who"); !strings.HasPrefix(got, "3 ") {
		t.Errorf("its own address: %q", got)
	}
	for _, page := range []string{"/readyz", "/metrics", "/nowhere"} {
		if _, body := s.get(page); !strings.Contains(body, "three") {
			t.Errorf("%s does not know it: %s", page, body)
		}
	}
	if st := s.Status(); len(st) != 3 || st[2].Lanes != 1 {
		t.Errorf("status: %+v", st)
	}

	lasting := s.connect("/three/mcp", "", nil)
	if err := s.Remove("three"); err != nil {
		t.Fatal(err)
	}
	next()
	if got := tools(); got != "one__who two__who" {
		t.Errorf("tools: %s", got)
	}
	if code, _ := s.get("/three/mcp"); code != 404 {
		t.Errorf("after it has gone: %d", code)
	}
	if _, err := lasting.CallTool(t.Context(), &mcp.CallToolParams{Name: "who"}); err == nil {
		t.Error("a session at a server that has gone goes on")
	}
	for _, page := range []string{"/readyz", "/nowhere", "/metrics"} {
		eventually(t, page+" knows it no more", func() bool { // its metrics stay until all of it has ended
			_, body := s.get(page)
			return !strings.Contains(body, "three")
		})
	}
	if err := s.Remove("two"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("one"); err == nil || !strings.Contains(err.Error(), "no servers") {
		t.Errorf("the last one: %v", err)
	}
	s.Close(t.Context())
	if err := s.Add(tells("four", "4")); err == nil {
		t.Error("a bridge that has been closed takes a server")
	}
}
