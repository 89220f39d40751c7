package bridge

import (
	"strings"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// ConnectionKey says whose a connection to a server is: clients with equal keys may share one. The key is a boundary
// between callers, so nothing else decides that. Instances of the last minor version know keys of this form.
type ConnectionKey string

// SessionKey returns the key of a session: its principal, revision, capabilities in canonical spelling, and forwarded
// headers (see Lasting), which the caller has under the server's names. It also returns these capabilities. They have
// no tasks, because tasks are relayed 1:1 only (protocol.md D3).
func SessionKey(from *Caller, forward []Forward) (key ConnectionKey, capabilities []byte) {
	capabilities = era.CanonicalCapabilities(rawjson.Delete(from.Capabilities, "tasks"))
	who := unambiguous(from.Principal) + "\x00" + from.Revision + "\x00" + string(capabilities)
	return connectionKey(who, forward, func(f *Forward) []string { return from.Header[f.To] }), capabilities
}

// IdentityKey returns the key of a stateless client, whose capabilities change with each request: its principal, and the
// headers and claims that are forwarded (see Lasting).
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

// unambiguous doubles each NUL: a user may choose the text of a claim, and a single NUL is what stands between parts.
func unambiguous(text string) string { return strings.ReplaceAll(text, "\x00", "\x00\x00") }
