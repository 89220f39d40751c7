// Package effects says of each key of a configuration when a change of it counts.
package effects

// Effect is when a changed setting counts, while the bridge goes on.
type Effect string

// The effects, from the soonest on.
const (
	// Live counts for the next call. Nothing is closed.
	Live Effect = "live"
	// Next counts for sessions that begin from now on at the server's own address,
	// for clients without sessions, and for sessions that have all servers as one. Other
	// sessions keep the former settings until they end.
	Next Effect = "next"
	// Restart counts after a restart. Until then the former value stays.
	Restart Effect = "restart"
)

// File has the effects of the keys of a file. The table in docs/operations.md
// says the same.
var File = map[string]Effect{
	"listen":              Restart,
	"base_path":           Restart,
	"allowed_origins":     Live,
	"allowed_hosts":       Live,
	"trusted_proxies":     Live,
	"max_message":         Restart,
	"max_bytes_in_flight": Restart,
	"max_connections":     Restart,
	"max_sessions":        Restart,
	"max_children":        Restart,
	"session_idle":        Live, // restart in a cluster
	"heartbeat":           Restart,
	"drain":               Live,
	"tls":                 Live, // restart where it is added or removed
	"oauth":               Restart,
	"public_url":          Restart,
	"access":              Live, // likewise; changes of rules for users
	"per_principal":       Live,
	"public_status":       Live,
	"ready":               Live,
	"reload":              Live,
	"admin":               Live,
	"log_level":           Live,
	"viewers":             Live,
	"console":             Live,
	"access_log":          Live,
	"cluster":             Restart,
	"offer":               Restart,
	"separator":           Next,
	"servers":             Live, // one that is added or removed, and their order
}

// Server has the effects of the keys of a server that stays.
var Server = map[string]Effect{
	"stdio":             Next,
	"http":              Next,
	"sse":               Next,
	"rest":              Next,
	"era":               Next,
	"revision":          Next,
	"offer":             Next,
	"share":             Next,
	"forward":           Next,
	"scopes":            Live,
	"identity":          Next,
	"prefix":            Next,
	"tools":             Next,
	"prompts":           Next,
	"resources":         Next,
	"validate":          Next,
	"cache":             Next,
	"breaker":           Next,
	"limits":            Next,
	"retry":             Next,
	"ping":              Next,
	"restart":           Next,
	"timeout":           Next,
	"max_timeout":       Next,
	"handshake_timeout": Next,
	"idle_stop":         Next,
	"max_children":      Next,
	"starts_per_minute": Next,
	"restart_max_pause": Next,
}
