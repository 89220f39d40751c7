package streamable

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

var (
	_ bridge.Resumable = (*wire)(nil)
	_ bridge.Resumer   = (*Upstream)(nil)
)

// portableState is what another process needs to continue a connection.
type portableState struct {
	Session string          `json:"session"` // the id that the server gave
	Server  json.RawMessage `json:"server"`  // the server's part of the handshake
	Cookies string          `json:"cookies,omitempty"`
}

// maxPortableState bounds a portableState as JSON, in bytes, since it is stored with each session.
const maxPortableState = 8 << 10

// ResumeData implements bridge.Resumable. It returns nil if the server has no sessions, or if the data
// would be too large.
func (w *wire) ResumeData() []byte {
	session, _ := w.identity()
	if session == "" {
		return nil
	}
	server := []byte{'{'}
	for _, name := range []string{"protocolVersion", "capabilities", "serverInfo"} { // the client already has the others
		if v := gjson.GetBytes(w.server.Result, name); v.Exists() {
			if len(server) > 1 {
				server = append(server, ',')
			}
			server = append(append(server, `"`+name+`":`...), v.Raw...)
		}
	}
	carry, err := json.Marshal(portableState{session, append(server, '}'), w.cookie.Header(w.a.client.URL())})
	if err != nil || len(carry) > maxPortableState {
		return nil
	}
	return carry
}

// Detach implements bridge.Resumable.
func (w *wire) Detach() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handedOver = true
}

// Resume implements bridge.Resumer. The first request shows whether the server still has the
// session.
func (u *Upstream) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	var p portableState
	if err := json.Unmarshal(carry, &p); err != nil {
		return nil, u.name.Unavailable("the connection of another instance cannot be continued", err)
	}
	w := newWire(ctx, u, from, rest)
	server, err := w.Conn.Resume(p.Server, above)
	if err == nil && (p.Session == "" || !w.admit(p.Session)) {
		err = errors.New("invalid session id")
	}
	if err != nil {
		w.stopListening()
		w.stop()
		return nil, u.name.Unavailable("the connection of another instance cannot be continued", err)
	}
	w.server = server
	w.cookie.Restore(u.client.URL(), p.Cookies)
	w.agree(server.Revision)
	u.eras.Learn(conn.EraLegacy, true)
	w.mu.Lock()
	w.open = true
	w.wg.Go(w.listen)
	w.mu.Unlock()
	close(w.taken) // the other process made the handshake
	return w, nil
}
