package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// defaults are the values that zero values stand for, by the type of the settings. The users of the settings apply the
// defaults.
var defaults = func() map[reflect.Type]reflect.Value {
	all := map[reflect.Type]reflect.Value{}
	for _, s := range []any{
		stdio.Config{StopStdin: 2 * time.Second, StopTerm: 3 * time.Second},
		remote.Config{Transport: remote.TransportAuto, IdleTimeout: 4 * time.Second},
		rest.Config{Mode: rest.ModeAuto, Attempts: 3, IdleTimeout: 4 * time.Second},
		rest.Limits{Answer: 100 << 10, Body: 8 << 20, File: 10 << 20, Concurrent: 64},
		OAuth{ClockSkew: token.DefaultSkew},
		Introspection{Cache: token.DefaultCache},
		limits.PerPrincipal{Sessions: 1000, Calls: 512},
		cache.Options{Stale: time.Hour, Bytes: 16 << 20},
		breaker.Options{Failures: 5, Percent: 60, Calls: 20, Window: 30 * time.Second, Pause: 5 * time.Second},
		limits.Options{Calls: 512, Queue: 512, Wait: 30 * time.Second},
		retry.Options{Attempts: 2},
	} {
		all[reflect.TypeOf(s)] = reflect.ValueOf(s)
	}
	return all
}()

// Standard returns the values that zero values in settings of type t stand for. ok is false if a zero value means zero.
func Standard(t reflect.Type) (v reflect.Value, ok bool) {
	v, ok = defaults[t]
	return v, ok
}

// Origin is the place of a key in the file.
type Origin struct {
	// Line is the line of the key, from 1.
	Line int
	// Variables are the names of the environment variables in the text of the key's value.
	Variables []string
}

// Origin returns where the file has a key, such as limits.calls, of the server of that name. An empty name means the
// file's own keys. ok is false if the file does not have the key.
func (c *Config) Origin(server, key string) (at Origin, ok bool) {
	at, ok = c.origins[server][key]
	return at, ok
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)

// originsOf returns the origins of the keys of a section, and of the sections in it.
func originsOf(sec *strict.Section) map[string]Origin {
	all := map[string]Origin{}
	for key, m := range sec.Marks {
		key, rest, item := strings.Cut(key, ": item ")
		if key == "" || m.Line == 0 || strings.Contains(rest, ": ") {
			continue
		}
		key = strings.ReplaceAll(key, ": ", ".")
		at := all[key] // the items of a list add their variables to its key
		if !item {
			at.Line = m.Line
		}
		for _, found := range variable.FindAllStringSubmatch(m.Shown, -1) {
			if !slices.Contains(at.Variables, found[1]) {
				at.Variables = append(at.Variables, found[1])
			}
		}
		all[key] = at
	}
	return all
}
