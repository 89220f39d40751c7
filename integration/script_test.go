//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A script is the checks of client.mjs by the Go client: the same names in the
// same order, each with what those before it have left in the session.
type script struct {
	peer     *peer
	where    target
	flavour  flavour
	revision string // of the handshake, as connect has it
}

// runScript plays the script. The clients connect by the handshake of a revision, or as the SDK does by
// itself if that is empty.
func runScript(t *testing.T, where target, f flavour, revision string) {
	p := newPeer("first", false)
	p.client.AddRoots(&mcp.Root{URI: "file:///tmp/first", Name: "first"})
	s := &script{peer: p.connect(t, where, revision), where: where, flavour: f, revision: revision}
	ended := make(chan struct{})
	go func() { // ends with the session
		p.session.Wait()
		close(ended)
	}()
	for _, check := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"initialize", s.initialize},
		{"ping", s.ping},
		{"tools-list", s.toolsList},
		{"echo", s.echo},
		{"echo-unicode", s.echoUnicode},
		{"echo-1mb", s.echoBig},
		{"get-sum", s.sum},
		{"structured-content", s.structured},
		{"image", s.image},
		{"annotations", s.annotations},
		{"resource-links", s.resourceLinks},
		{"embedded-resource", s.embedded},
		{"resources-list", s.resourcesList},
		{"resources-read", s.resourcesRead},
		{"resource-templates", s.templates},
		{"pagination", s.pagination},
		{"subscriptions", s.subscriptions},
		{"prompts-list", s.promptsList},
		{"prompts-get", s.promptsGet},
		{"completion", s.completion},
		{"logging-level", s.loggingLevel},
		{"progress", s.progress},
		{"cancellation", s.cancellation},
		{"sampling", s.sampling},
		{"sampling-refused", s.samplingRefused},
		{"elicitation", s.elicitation},
		{"elicitation-declined", s.elicitationDeclined},
		{"elicitation-url", s.elicitationURL},
		{"roots", s.roots},
		{"roots-changed", s.rootsChanged},
		{"list-changed", s.listChanged},
		{"errors", s.refusals},
		{"concurrent", s.concurrent},
		{"no-capabilities", s.noCapabilities},
		{"two-clients", s.twoClients},
		{"default-handshake", s.defaultHandshake},
	} {
		select {
		case <-ended:
			t.Fatalf("the session ended before %s: %v", check.name, p.session.Wait())
		default:
		}
		t.Run(check.name, check.run)
	}
	p.close(t)
}

func textURI(n int) string { return fmt.Sprintf("demo://resource/dynamic/text/%d", n) }

func blobURI(n int) string { return fmt.Sprintf("demo://resource/dynamic/blob/%d", n) }

// same compares what went through JSON with what is written in the test.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := roundTrip(got), roundTrip(want); !reflect.DeepEqual(g, w) {
		t.Errorf("%s = %s, want %s", what, brief(got), brief(want))
	}
}

func roundTrip(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var back any
	json.Unmarshal(text, &back)
	return back
}

func contains(t *testing.T, what, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("%s = %q, want %q in it", what, got, want)
		}
	}
}

func includes(t *testing.T, what string, got []string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !slices.Contains(got, want) {
			t.Errorf("%s: no %s in %v", what, want, got)
		}
	}
}

func (s *script) initialize(t *testing.T) {
	got := s.peer.session.InitializeResult()
	same(t, "server name", got.ServerInfo.Name, s.flavour.Server.Name)
	same(t, "server version", got.ServerInfo.Version, s.flavour.Server.Version)
	contains(t, "instructions", got.Instructions, s.flavour.Server.Instructions)
	capabilities := roundTrip(got.Capabilities).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(s.flavour.Server.Capabilities)) {
		same(t, "capability "+name, capabilities[name], s.flavour.Server.Capabilities[name])
	}
	same(t, "revision", got.ProtocolVersion, legacy)
}

func (s *script) ping(t *testing.T) {
	if err := s.peer.session.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// refused checks how a wrong request is answered.
func (s *script) refused(t *testing.T, kind string, request func(context.Context) (*mcp.CallToolResult, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want, ok := s.flavour.Errors[kind]
	if !ok {
		return // this server takes it
	}
	r, err := request(ctx)
	text := ""
	switch {
	case err != nil:
		text = err.Error()
	case r != nil && r.IsError:
		text = textOf(r)
	default:
		t.Errorf("%s was not refused", kind)
		return
	}
	if want.InResult && err != nil {
		t.Errorf("%s: error %v, want it within the result", kind, err)
	}
	if want.Code != 0 && code(err) != want.Code {
		t.Errorf("%s: error %v with code %d, want code %d", kind, err, code(err), want.Code)
	}
	contains(t, kind, text, want.Text)
}

func (s *script) refusals(t *testing.T) {
	cs := s.peer.session
	s.refused(t, "unknownTool", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return cs.CallTool(ctx, &mcp.CallToolParams{Name: "no-such-tool"})
	})
	s.refused(t, "invalidArguments", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return cs.CallTool(ctx, &mcp.CallToolParams{Name: "get-sum", Arguments: map[string]any{"a": "one"}})
	})
	s.refused(t, "unknownPrompt", func(ctx context.Context) (*mcp.CallToolResult, error) {
		_, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "no-such-prompt"})
		return nil, err
	})
	s.refused(t, "missingArgument", func(ctx context.Context) (*mcp.CallToolResult, error) {
		_, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{}})
		return nil, err
	})
	s.refused(t, "unknownResource", func(ctx context.Context) (*mcp.CallToolResult, error) {
		_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "demo://no/such/thing"})
		return nil, err
	})
	s.refused(t, "unknownMethod", func(ctx context.Context) (*mcp.CallToolResult, error) {
		_, err := mcp.CallCustomMethod[*emptyParams, *emptyResult](ctx, cs, unknownMethod, &emptyParams{})
		return nil, err
	})
	s.refused(t, "badLevel", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return nil, cs.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "loud"})
	})
	same(t, "the next call", s.peer.text(t, "echo", map[string]any{"message": "still here"}), "Echo: still here")
}

func (s *script) concurrent(t *testing.T) {
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			word := fmt.Sprintf("word %d", i)
			r, err := s.peer.call(t, "echo", map[string]any{"message": word})
			if err != nil {
				t.Errorf("echo %s: %v", word, err)
				return
			}
			same(t, "echo", textOf(r), "Echo: "+word)
		})
	}
	calls.Wait()
}

func (s *script) noCapabilities(t *testing.T) {
	plain := newPeer("plain", true).connect(t, s.where, s.revision)
	defer plain.close(t)
	tools, _ := plain.tools(t)
	for _, name := range toolNames(tools) {
		if slices.Contains(s.flavour.Hidden, name) {
			t.Errorf("%s is offered to a client without capabilities", name)
		}
	}
	if r := plain.tool(t, s.flavour.Names["sampling"], map[string]any{"prompt": "x"}); !r.IsError {
		t.Errorf("sampling without the capability: %s", brief(r))
	}
	asked := plain.since(0, func(m message) bool {
		return m.method == "roots/list" || m.method == "sampling/createMessage" || m.method == "elicitation/create"
	})
	if len(asked) > 0 {
		t.Errorf("requests to a client without capabilities: %v", asked)
	}
}

func (s *script) twoClients(t *testing.T) {
	first, other := s.peer, newPeer("other", false)
	other.client.AddRoots(&mcp.Root{URI: "file:///tmp/other", Name: "other"})
	other.connect(t, s.where, s.revision)
	defer other.close(t)
	asked, _ := first.questions()
	mine, theirs := textURI(301), textURI(302)
	first.subscribe(t, mine)
	other.subscribe(t, theirs)
	fromFirst, fromOther := first.mark(), other.mark()

	both := func(name string, args func(who string) map[string]any) (a, b string) {
		var calls sync.WaitGroup
		call := func(p *peer, who string, into *string) {
			calls.Go(func() {
				r, err := p.call(t, name, args(who))
				if err != nil {
					t.Errorf("%s by %s: %v", name, who, err)
					return
				}
				*into = textOf(r)
			})
		}
		call(first, "first", &a)
		call(other, "other", &b)
		calls.Wait()
		return a, b
	}
	for round := range 10 {
		a, b := both("echo", func(who string) map[string]any { return map[string]any{"message": fmt.Sprint(who, round)} })
		same(t, "echo", []string{a, b}, []string{fmt.Sprint("Echo: first", round), fmt.Sprint("Echo: other", round)})
	}
	both(s.flavour.Names["sampling"], func(who string) map[string]any { return map[string]any{"prompt": "prompt of " + who} })
	none := func(string) map[string]any { return nil }
	a, b := both(s.flavour.Names["roots"], none)
	if strings.Contains(a, "/tmp/other") || !strings.Contains(b, "/tmp/other") {
		t.Errorf("roots of the first: %q, of the other: %q", a, b)
	}
	both(s.flavour.Names["updates"], none)
	first.next(t, fromFirst, "own update", updateOf(mine))
	other.next(t, fromOther, "own update", updateOf(theirs))
	both(s.flavour.Names["updates"], none)
	first.unsubscribe(t, mine)
	if leaked := append(first.since(fromFirst, updateOf(theirs)), other.since(fromOther, updateOf(mine))...); len(leaked) > 0 {
		t.Errorf("updates that belong to the other: %v", leaked)
	}
	for p, want := range map[*peer]string{first: "prompt of first", other: "prompt of other"} {
		qs, _ := p.questions()
		if p == first {
			qs = qs[len(asked):]
		}
		if len(qs) != 1 || !strings.Contains(promptOf(qs[0]), want) {
			t.Errorf("sampling requests: %s, want one with %q", brief(qs), want)
		}
	}
}

// defaultHandshake connects as this client does by itself: it asks for the
// newest revision in the modern way first, and falls back.
func (s *script) defaultHandshake(t *testing.T) {
	start := time.Now()
	p := newPeer("default", false).connect(t, s.where, "")
	defer p.close(t)
	same(t, "echo", p.text(t, "echo", map[string]any{"message": "hello"}), "Echo: hello")
	t.Logf("revision %s after %v", p.session.InitializeResult().ProtocolVersion, time.Since(start).Round(time.Millisecond))
}
