package config

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Server is one server of the file. Exactly one of its pointer fields, or Adapter, is set: the kind of the server,
// which says how the bridge reaches the server.
type Server struct {
	// Name is the server's part of the URL: lower-case letters, digits and '-'.
	Name string `yaml:"-"`
	// Adapter is a kind of server that only a program can set. Package inprocess makes an Adapter from a server of the
	// official SDK.
	Adapter bridge.Adapter `yaml:"-"`
	// Unusable is the reason that the server is out of service: a variable that its settings need is not set, or a file
	// that they name cannot be used. Then the other settings are incomplete. Empty means that the settings can be used.
	Unusable string `yaml:"-"`
	// Stdio runs the server as a child process.
	Stdio *stdio.Config `yaml:"stdio" effect:"renew"`
	// HTTP reaches a remote server over Streamable HTTP, or over HTTP+SSE if the server supports no other transport.
	HTTP *remote.Config `yaml:"http" effect:"renew"`
	// SSE reaches a remote server over HTTP+SSE.
	SSE *remote.Config `yaml:"sse" effect:"renew"`
	// Rest turns an HTTP API into a server.
	Rest *rest.Config `yaml:"rest" effect:"renew"`
	// Era is the era of the protocol between bridge and server: EraAuto (the default), EraLegacy or EraModern. HTTP+SSE
	// is always legacy.
	Era string `yaml:"era" effect:"next" default:"auto" one_of:"auto legacy modern"`
	// Revision is the newest revision that the bridge offers to the server. A modern revision excludes legacy ones.
	// Default: the newest that both sides know.
	Revision string `yaml:"revision" effect:"next" text:"revision"`
	gateway.ServerSettings
	// Place decides which of several instances runs the server's child processes: PlaceHere (the default) or
	// PlaceWorkers.
	Place string `yaml:"place" effect:"next" default:"here" one_of:"here workers"`
	// Forward lists the client headers that the bridge forwards to the server: as headers, or as environment variables
	// of a child process. Default: none.
	Forward []bridge.Forward `yaml:"forward" effect:"next"`
	// Scopes are the scopes that a token needs for calls of the server. Default: none.
	Scopes Scopes `yaml:"scopes" effect:"live"`
	// Identity maps names to claims of the caller's token. The server gets each claim under its name: in a header, or
	// for a child process in an environment variable. Default: none.
	Identity map[string]string `yaml:"identity" effect:"renew"`
	// Restart makes the bridge start a failed server again at its next use. Default true.
	Restart bool `yaml:"restart" effect:"live" default:"true"`
	// Timeout is the time limit of a call without progress; progress resets it. Default 300s.
	Timeout time.Duration `yaml:"timeout" effect:"live" default:"5m"`
	// MaxTimeout is the time limit of a call, with or without progress. Default 1h.
	MaxTimeout time.Duration `yaml:"max_timeout" effect:"live" default:"1h"`
	// IdleStop is the idle time after which the bridge closes a connection. 0 means never, as does "off" in a file.
	// Default: never with ShareSession, since the server may hold state of the client; otherwise 10m.
	IdleStop time.Duration `yaml:"idle_stop,off" effect:"next" min:"0s"`
}

// EraAuto, EraLegacy and EraModern are the values of Server.Era.
const (
	EraAuto   = string(conn.EraAuto)   // the bridge detects the era
	EraLegacy = string(conn.EraLegacy) // revisions with a handshake and sessions, up to 2025-11-25
	EraModern = string(conn.EraModern) // revisions without handshake and sessions, from 2026-07-28
)

// ShareSession, SharePrincipal, ShareCall and ShareAll are the values of Server.Share.
const (
	ShareSession   = "session"   // one connection for each session
	SharePrincipal = "principal" // one connection for each principal
	ShareCall      = "call"      // one connection for each call, closed afterwards
	ShareAll       = "all"       // one connection for all callers
)

// Scopes are the scopes that a token needs for calls of a server. Callers with keys need none. Patterns match the names
// that clients see at the server's own address, and the URIs of resources. If several patterns match, the token needs
// the scopes of all of them.
type Scopes struct {
	// All are the scopes for every call.
	All Words `yaml:"all"`
	// Tools, Prompts and Resources hold additional scopes, by pattern.
	Tools     map[string]Words `yaml:"tools"`
	Prompts   map[string]Words `yaml:"prompts"`
	Resources map[string]Words `yaml:"resources"`
}

// kindKeys returns the keys of all kinds of servers.
var kindKeys = sync.OnceValue(func() []string {
	var all []string
	for _, f := range setting.Fields(reflect.TypeFor[Server]()) {
		if f.Type.Kind() == reflect.Pointer {
			all = append(all, f.Key)
		}
	}
	return all
})

// kinds returns the keys of the kinds that the server has.
func (s *Server) kinds() []string {
	var set []string
	if s.Adapter != nil {
		set = append(set, "Adapter")
	}
	v := reflect.ValueOf(s).Elem()
	for _, f := range setting.Fields(v.Type()) {
		if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Pointer && !field.IsNil() {
			set = append(set, f.Key)
		}
	}
	return set
}

// Remote returns the settings of a server of kind http or sse; nil for other servers.
func (s *Server) Remote() *remote.Config {
	if s.HTTP != nil {
		return s.HTTP
	}
	return s.SSE
}

// Forwards returns what the server gets of a client's request: the entries of Forward, the claims of Identity, and the
// token if the bridge exchanges it.
func (s *Server) Forwards() []bridge.Forward {
	if len(s.Identity) == 0 && !s.Exchanges() {
		return s.Forward
	}
	all := slices.Clone(s.Forward)
	if s.Exchanges() {
		all = append(all, bridge.Forward{Token: true})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Identity)) {
		to := name
		if s.Stdio == nil {
			to = http.CanonicalHeaderKey(name)
		}
		all = append(all, bridge.Forward{Claim: s.Identity[name], To: to})
	}
	return all
}

// Exchanges reports whether the bridge exchanges each caller's token for a token of the server.
func (s *Server) Exchanges() bool {
	c := s.Remote()
	return c != nil && c.OAuth != nil && c.OAuth.Exchange != "" || s.Rest != nil && s.Rest.Auth.Exchanges()
}

// Claims returns the claims of the caller's token that the server, or an argument of its tools, gets.
func (s *Server) Claims() []string {
	all := slices.Collect(maps.Values(s.Identity))
	s.references(func(_, reference string) {
		if name, ok := strings.CutPrefix(reference, arguments.Claim); ok {
			all = append(all, name)
		}
	})
	return all
}

// references calls f with each reference to the caller in the values of arguments, and with its key.
func (s *Server) references(f func(key, reference string)) {
	for _, name := range slices.Sorted(maps.Keys(s.Tools.Override)) {
		args := s.Tools.Override[name].Args
		for _, arg := range slices.Sorted(maps.Keys(args)) {
			for _, reference := range arguments.References(args[arg].Value) {
				f("tools: override: "+name+": args: "+arg, reference)
			}
		}
	}
}
