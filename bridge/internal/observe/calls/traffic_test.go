package calls

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// page is a Watcher of one server, or of all.
type page struct {
	server  string
	payload bool
	got     []*Message
}

func (p *page) Wants(server, _ string) (it, payload bool) {
	return p.server == "" || p.server == server, p.payload
}
func (p *page) Passed(m *Message) { p.got = append(p.got, m) }

func (p *page) said() (all []string) {
	for _, m := range p.got {
		s := fmt.Sprint(m.Side, " > ", m.To, " ", m.Kind, " ", m.Method, " ", m.Name, " ", m.ID)
		if m.Took != nil {
			s += fmt.Sprint(" ", *m.Took, " ms")
		}
		if m.ToolError {
			s += ", tool error"
		}
		all = append(all, s)
	}
	return all
}

func messages(t testing.TB) (request, answer, question, reply, progress, failure *jsonrpc.Message) {
	return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"read","arguments":{"a":1}}}`),
		bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`),
		bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}`),
		bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"result":{"role":"user"}}`),
		bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":3,"total":10}}`),
		bridgetest.Parse(t, `{"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"no"}}`)
}

// An answer is shown with the method of its request and the time since. Requests of both sides with the same id
// are distinguished.
func TestWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Traffic
		p := &page{}
		w := all.Wire("files", "dev")
		if w.On() || (*Traffic)(nil).On() {
			t.Error("somebody looks")
		}
		done := all.Look(p)
		request, answer, question, reply, progress, failure := messages(t)
		w.Passed(true, []byte("7"), request)
		time.Sleep(2 * time.Millisecond)
		w.Passed(false, []byte("7"), question)
		time.Sleep(time.Millisecond)
		w.Passed(true, []byte("7"), reply)
		w.Passed(false, nil, progress)
		time.Sleep(time.Millisecond)
		w.Passed(false, []byte("7"), answer)
		w.Passed(false, []byte("7"), answer) // of an unknown request
		w.Passed(true, []byte("9"), request)
		w.Passed(false, []byte("9"), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"result":{"content":[],"isError":true}}`))
		w.Passed(false, []byte("8"), failure)
		want := []string{
			"server > server request tools/call read 7", "server > client request sampling/createMessage  7", "server > server result sampling/createMessage  7 1 ms",
			"server > client notification notifications/progress 3/10 ", "server > client result tools/call read 7 4 ms", "server > client result   7",
			"server > server request tools/call read 9", "server > client result tools/call read 9 0 ms, tool error", "server > client error   8",
		}
		if got := p.said(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if last := p.got[len(p.got)-1]; last.Code != -32602 || last.Server != "files" || last.Principal != "dev" || last.Bytes == 0 {
			t.Errorf("%+v", last)
		}
		for n := range 10 * maxAsked {
			w.Passed(true, fmt.Append(nil, n), request)
		}
		if n := len(w.asked); n > maxAsked {
			t.Errorf("%d requests are remembered", n)
		}
		done()
		done()
		n := len(p.got)
		w.Passed(true, []byte("7"), request)
		if w.On() || len(p.got) != n {
			t.Error("somebody is told who does not look any more")
		}
	})
}

// A client's request is shown with its answer, or with the reason why there is none.
func TestExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Traffic
		request, answer, _, _, progress, _ := messages(t)
		if e := all.Asked("files", "1f0c9a7e", "dev", request); e != nil {
			t.Error("told although nobody looks")
		} else {
			e.Notified(progress) // nothing happens
			e.Answered(answer)
			e.Failed("x")
		}
		p, other := &page{}, &page{server: "other"}
		defer all.Look(p)()
		defer all.Look(other)()
		e := all.Asked("files", "1f0c9a7e", "dev", request)
		e.Notified(progress)
		time.Sleep(time.Second)
		e.Answered(answer)
		e.Answered(nil)
		e.Failed("it is lost")
		want := []string{
			`client > server request tools/call read "mine"`, "client > client notification notifications/progress 3/10 ", `client > client result tools/call read "mine" 1000 ms`,
			`client > client error tools/call read "mine" 1000 ms`,
		}
		if got := p.said(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if m := p.got[0]; m.Session != "1f0c9a7e" || len(other.got) != 0 {
			t.Errorf("%+v; of another server: %d", m, len(other.got))
		}
	})
}

// Payloads go to the watchers that want them, masked and cut; names and ids are cut, too (O-032).
func TestPayload(t *testing.T) {
	all := Traffic{Mask: func(raw []byte, most int) ([]byte, bool) {
		text := strings.ReplaceAll(string(raw), "secret", "***")
		return []byte(text[:min(len(text), most)]), len(text) <= most
	}}
	with, without := &page{payload: true}, &page{}
	defer all.Look(without)()
	defer all.Look(with)()
	long := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		message, payload string
		cut              bool
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"secret"}}}`, `{"name":"x","arguments":{"a":"***"}}`, false},
		{`{"jsonrpc":"2.0","id":1,"result":{"b":"secret"}}`, `{"b":"***"}`, false},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"secret"}}`, `{"code":1,"message":"***"}`, false},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", false},
		{`{"jsonrpc":"2.0","id":1,"result":{"b":"` + long[:10_000] + `"}}`, `{"b":"` + long[:maxPayload-6], true},
		{`{"jsonrpc":"2.0","id":1,"result":{"b":"` + long + `"}}`, "", true},
	} {
		m := bridgetest.Parse(t, tc.message)
		all.Pass(Where{Side: Client, Server: "files"}, true, m.ID, m, nil)
		got, short := with.got[len(with.got)-1], without.got[len(without.got)-1]
		if got.Payload != tc.payload || got.Cut != tc.cut || short.Payload != "" || short.Cut {
			t.Errorf("%.100s: %.100q, %t; without: %.100q", tc.message, got.Payload, got.Cut, short.Payload)
		}
	}
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"`+long+`","method":"`+long+`","params":{"name":"`+long+`"}}`)
	all.Pass(Where{}, true, m.ID, m, nil)
	if got := without.got[len(without.got)-1]; len(got.ID) != maxID || len(got.Method) != maxTrafficText || len(got.Name) != maxTrafficText {
		t.Errorf("%d, %d, %d bytes", len(got.ID), len(got.Method), len(got.Name))
	}
	all.Mask = nil
	all.Pass(Where{}, true, nil, bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"x","params":{"a":"secret"}}`), nil)
	if got := with.got[len(with.got)-1]; got.Payload != "" {
		t.Errorf("without a mask: %q", got.Payload)
	}
}

// The URI of a resource is shown masked to watchers of payloads. Others see its scheme and host only.
func TestURI(t *testing.T) {
	all := Traffic{Mask: func(raw []byte, _ int) ([]byte, bool) {
		return []byte(strings.ReplaceAll(string(raw), "hunter2hunter2", "[redacted]")), true
	}}
	with, without := &page{payload: true}, &page{}
	defer all.Look(without)()
	defer all.Look(with)()
	for _, tc := range []struct{ uri, long, short string }{
		{"https://files.example.com/people/ann?token=hunter2hunter2", "https://files.example.com/people/ann?token=[redacted]", "https://files.example.com"},
		{"https://ann:hunter2@files.example.com/a", "https://ann:hunter2@files.example.com/a", "https://files.example.com"},
		{"file:///home/ann/plan.txt", "file:///home/ann/plan.txt", "file://"},
		{"urn:patient:17", "urn:patient:17", "urn:"}, {"patient 17", "patient 17", ""}, {"%zz://ann", "%zz://ann", ""},
	} {
		for _, method := range []string{"resources/read", "resources/subscribe", "notifications/resources/updated"} {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"`+method+`","params":{"uri":"`+tc.uri+`"}}`)
			all.Pass(Where{}, true, nil, m, nil)
			if long, short := with.got[len(with.got)-1].Name, without.got[len(without.got)-1].Name; long != tc.long || short != tc.short {
				t.Errorf("%s %s is shown as %q, and without what it carries as %q", method, tc.uri, long, short)
			}
		}
		e := all.Asked("files", "", "", bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+tc.uri+`"}}`))
		e.Answered(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`))
		if long, short := with.got[len(with.got)-1].Name, without.got[len(without.got)-1].Name; long != tc.long || short != tc.short {
			t.Errorf("the answer to %s is shown as %q, and without what it carries as %q", tc.uri, long, short)
		}
	}
}
