package arguments

import (
	"strings"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Of returns the raw arguments of a call, a part of params; nil for none. ok is false if params have arguments twice, or a
// name that differs from arguments in case only: the server may read the other member.
func Of(params []byte) (args []byte, ok bool) {
	found := 0
	rawjson.Each(params, func(name, value []byte) {
		switch {
		case string(name) == "arguments":
			if found++; string(value) != "null" { // some clients write null instead of leaving the member out
				args = value
			}
		case strings.EqualFold(string(name), "arguments"):
			found = 2
		}
	})
	return args, found < 2
}
