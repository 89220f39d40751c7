package rest

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
)

// abroad is a connection whose other end seems to be on the internet.
type abroad struct{ net.Conn }

func (abroad) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(93, 184, 215, 14), Port: 80} }

// readAbroad makes an adapter read its documents as if they were on the internet. Addresses in the
// documents are dialled as usual.
func readAbroad(t *testing.T, a *Adapter) {
	t.Helper()
	far, err := remote.New(remote.Config{Proxy: "none", Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return abroad{c}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	a.maker.texts.Clients().Guarded = far
}

// A document on the internet may name servers on this machine and in private networks. No call goes
// there unless the operator names them too.
func TestInsideServers(t *testing.T) {
	t.Parallel()
	free := func(servers string) string { return describing(servers, "", `"security": [], `) }
	for _, test := range []struct {
		name   string
		doc    func(own, other string) string
		change func(c *Config, other string)
		goes   bool
	}{
		{name: "another", doc: func(_, other string) string { return free(servers(other)) }},
		{name: "another of the operation", doc: func(own, other string) string { return describing(servers(own), "", `"security": [], `+servers(other)) }},
		{name: "by a name", doc: func(_, other string) string {
			return free(servers(strings.Replace(other, "127.0.0.1", "localhost", 1)))
		}},
		{name: "in another form", doc: func(_, other string) string {
			return free(servers(strings.Replace(other, "127.0.0.1", "[::ffff:127.0.0.1]", 1)))
		}},
		{name: "by a variable", doc: func(_, other string) string {
			return free(`"servers": [{"url": "{where}/v1", "variables": {"where": {"default": "` + other + `"}}}], `)
		}},
		{name: "private", doc: func(string, string) string { return free(servers("http://10.0.0.1:1")) }},
		{name: "its own, by a name that has moved", doc: func(string, string) string { return free(servers("/v1")) }},
		{name: "none", doc: func(string, string) string { return free("") }},
		{name: "trusted", doc: func(_, other string) string { return free(servers(other)) }, change: func(c *Config, other string) { c.Trusted = []string{other} }, goes: true},
		{name: "base_url", doc: func(string, string) string { return free(servers("http://10.0.0.1:1")) }, change: func(c *Config, other string) { c.BaseURL = other }, goes: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			own, other := newSite(t), newSite(t)
			own.says(test.doc(own.URL, other.URL))
			c := Config{OpenAPI: own.URL + "/openapi.json"}
			if test.change != nil {
				test.change(&c, other.URL)
			}
			log := &adaptertest.Log{}
			a := adapter(t, c, Options{Log: log.Logger()})
			readAbroad(t, a)
			text, wrong := call(t, connect(t, a, nil), "a", "{}")
			ownCalls, _ := own.got()
			otherCalls, _ := other.got()
			if wrong == test.goes || (ownCalls+otherCalls > 0) != test.goes {
				t.Errorf("%d calls went to its own server and %d to another: %s", ownCalls, otherCalls, text)
			}
			if !test.goes && (!strings.Contains(text, "on this machine or in a private network, and was itself read on the internet") || !strings.Contains(text, "base_url or trusted")) {
				t.Errorf("the call is refused with %s", text)
			}
			if warned := times(log, "names a server where it may send no calls"); warned > 0 == test.goes {
				t.Errorf("the log says it %d times: %s", warned, log)
			}
		})
	}
}

// Parts of a document at other URLs may name servers too. A saved copy of a document from the
// internet is treated the same way.
func TestInsideParts(t *testing.T) {
	t.Parallel()
	own, friend, other := newSite(t), newSite(t), newSite(t)
	friend.says(`{"servers": [{"url": "` + other.URL + `"}], "get": {"operationId": "a", ` + simple + `}}`)
	a := adapter(t, Config{OpenAPI: file(t, `{"openapi": "3.1.0", `+servers(own.URL)+`"paths": {"/a": {"$ref": "`+friend.URL+`/part.json"}}}`), Trusted: []string{friend.URL}}, Options{})
	readAbroad(t, a)
	if text, wrong := call(t, connect(t, a, nil), "a", "{}"); !wrong || !strings.Contains(text, "base_url or trusted") {
		t.Errorf("the server of a part: %s", text)
	}

	own.says(describing(servers(other.URL), "", `"security": [], `))
	c := Config{OpenAPI: own.URL + "/openapi.json", KeepDir: t.TempDir()}
	before := adapter(t, c, Options{})
	readAbroad(t, before)
	connect(t, before, nil)
	own.Close()
	if text, wrong := call(t, connect(t, adapter(t, c, Options{}), nil), "a", "{}"); !wrong || !strings.Contains(text, "base_url or trusted") {
		t.Errorf("a document that was kept: %s", text)
	}
	if calls, _ := other.got(); calls > 0 {
		t.Errorf("%d calls went there", calls)
	}

	// The name of its own server may resolve to our network when the next part is read.
	moved := newSite(t)
	moved.says(`{"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a", ` + simple + `}}, "/b": {"$ref": "part.json"}}}`)
	log := &adaptertest.Log{}
	a = adapter(t, Config{OpenAPI: moved.URL + "/openapi.json", Remarks: true}, Options{Log: log.Logger()})
	readAbroad(t, a)
	if got := names(t, connect(t, a, nil)); got != "a" || times(log, "an address that nothing is sent to") == 0 {
		t.Errorf("tools %s; the log: %s", got, log)
	}
}
