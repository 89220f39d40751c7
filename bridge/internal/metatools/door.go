package metatools

import (
	"strings"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// These are the names of the meta tools.
const (
	SearchTools = "search_tools"
	ReadTool    = "read_tool"
	CallTool    = "call_tool"
)

// Calls reports whether a tool of that name calls another tool.
func Calls(name string) bool { return name == ReadTool || name == CallTool }

// Unwrap returns the call that a call of ReadTool or CallTool names, and the meta tool through which it came: if one
// meta tool names the other, ReadTool. All other members of params stay, such as _meta and task. fault, if not empty,
// is the reason that the call is refused, for the model. The caller has checked that m is a call of one of these
// tools.
//
// Models make three mistakes again and again, which Unwrap accepts: arguments as JSON text, {name, arguments} within
// arguments, and arguments beside name. Unwrap refuses arguments that could mean two things.
func Unwrap(m *jsonrpc.Message) (inner *jsonrpc.Message, through, fault string) {
	through = m.Name()
	given, ok := sole(m.Params, "arguments")
	if m.Doubtful() || !ok {
		return nil, through, "params must not have name or arguments twice, or a member that differs from them in case only"
	}
	c, fault := read(given)
	if fault == "" && Calls(c.name) {
		if c.name == ReadTool {
			through = ReadTool
		}
		c, fault = read(c.arguments)
		if fault == "" && Calls(c.name) {
			fault = CallTool + " does not call itself: give the name of the tool that does the work"
		}
	}
	if fault != "" {
		return nil, through, fault
	}
	params := rawjson.Set(m.Params, "name", []byte(rawjson.Quote(c.name)))
	return m.WithParams(rawjson.Set(params, "arguments", c.arguments)), through, ""
}

// named is a call of a tool by its name.
type named struct {
	name      string
	arguments []byte // a JSON object
}

const howTo = ` Give {"name": the tool, "arguments": {…}}`

// read reads the arguments of ReadTool or CallTool.
func read(given []byte) (c named, fault string) {
	given, ok := object(given)
	if !ok {
		return c, "arguments must be an object." + howTo
	}
	name, one := sole(given, "name")
	arguments, other := sole(given, "arguments")
	if !one || !other {
		return c, "name and arguments must be there once, in this spelling." + howTo
	}
	var beside []string
	rawjson.Each(given, func(name, _ []byte) {
		if n := string(name); n != "name" && n != "arguments" {
			beside = append(beside, n)
		}
	})
	switch {
	case name == nil && arguments != nil && len(beside) == 0: // {"arguments": {"name": …, "arguments": …}}
		if inner, ok := object(arguments); ok && rawjson.Get(inner, "name") != nil {
			return readInner(inner)
		}
		return c, "name is missing." + howTo
	case name == nil:
		return c, "name is missing." + howTo
	case len(beside) > 0 && rawjson.Given(arguments):
		return c, beside[0] + " stands beside arguments: it must be within them, or not at all." + howTo
	case len(beside) > 0:
		arguments = rawjson.Delete(given, "name", "arguments")
	}
	if c.name, ok = rawjson.Text(name); !ok || c.name == "" {
		return c, "name must be the name of a tool, as text." + howTo
	}
	if c.arguments, ok = object(arguments); !ok {
		return c, "arguments must be an object." + howTo
	}
	if again, _ := sole(c.arguments, "name"); again != nil && !Calls(c.name) {
		if inner, fault := readInner(c.arguments); fault == "" && inner.name == c.name {
			return inner, ""
		}
	}
	return c, ""
}

// readInner reads an object that must have the members name and arguments, and no others.
func readInner(given []byte) (c named, fault string) {
	members, ok := 0, false
	rawjson.Each(given, func(_, _ []byte) { members++ })
	name, _ := sole(given, "name")
	arguments, _ := sole(given, "arguments")
	if c.name, ok = rawjson.Text(name); !ok || c.name == "" || arguments == nil || members != 2 {
		return c, "name is missing." + howTo
	}
	if c.arguments, ok = object(arguments); !ok {
		return c, "arguments must be an object." + howTo
	}
	return c, ""
}

// maxDepth bounds the depth of arguments that come as text. Arguments that come as an object have the bound of their
// message.
const maxDepth = 900

// object returns an object that may be written as JSON text. A missing value, null and an empty text stand for {}.
func object(given []byte) ([]byte, bool) {
	if text, is := rawjson.Text(given); is {
		if text = strings.TrimSpace(text); text != "" && !jsonrpc.Valid([]byte(text), maxDepth) {
			return nil, false
		}
		given = rawjson.OneLine([]byte(text))
	}
	if !rawjson.Given(given) {
		return []byte("{}"), true
	}
	return given, rawjson.IsObject(given)
}

// sole returns the value of a member; nil if there is none. sole reports false if the member is there twice, or if
// the name of another member differs from it in case only.
func sole(given []byte, member string) (value []byte, ok bool) {
	times := 0
	rawjson.Each(given, func(name, v []byte) {
		if strings.EqualFold(string(name), member) {
			times++
			if string(name) == member {
				value = v
			} else {
				times++
			}
		}
	})
	return value, times < 2
}
