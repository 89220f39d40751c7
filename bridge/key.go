package bridge

import (
	"strings"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// ConnectionKey identifies whose a connection to a server is: clients with equal keys may share the connection. So
// nothing but the key may decide that. Instances of the last minor version must know keys in this form.
type ConnectionKey string

// SessionKey returns the key of a session: its principal, revision, canonical capabilities, and the forwarded headers
// that distinguish callers (see Lasting). from has these headers under the server's names. SessionKey also returns the
// capabilities. They do not include tasks, because only connections of a single session relay tasks (protocol.md D3).
func SessionKey(from *Caller, forward []Forward) (key ConnectionKey, capabilities []byte) {
	capabilities = era.CanonicalCapabilities(rawjson.Delete(from.Capabilities, "tasks"))
	who := unambiguous(from.Principal) + "\x00" + from.Revision + "\x00" + string(capabilities)
	return connectionKey(who, forward, func(f *Forward) []string { return from.Header[f.To] }), capabilities
}

// IdentityKey returns the key of a stateless client: its principal, and the forwarded headers and claims that
// distinguish callers (see Lasting). It leaves out capabilities, which may change with each request.
func IdentityKey(from *Caller, forward []Forward) ConnectionKey {
	return connectionKey(unambiguous(from.Principal), forward, func(f *Forward) []string { return f.Values(from.Header, from.Identity) })
}

func connectionKey(who string, forward []Forward, values func(*Forward) []string) ConnectionKey {
	var key strings.Builder
	key.WriteString(who)
	for _, f := range Lasting(forward) {
		for _, value := range values(&f) {
			key.WriteString("\x00" + f.To + ":" + unambiguous(value))
		}
	}
	return ConnectionKey(key.String())
}

// unambiguous doubles each NUL in a part of a key. A single NUL separates the parts, and a user may choose the text of
// a claim.
func unambiguous(text string) string { return strings.ReplaceAll(text, "\x00", "\x00\x00") }
