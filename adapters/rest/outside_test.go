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
