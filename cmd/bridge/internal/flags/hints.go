package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// elsewhere are flags of other programs for the same jobs, and what to write
// here. They are written as they are compared: without - and in small letters.
var elsewhere = map[string]string{
	"stdio":              "put the command behind --: mcp-bridge run -- COMMAND",
	"command":            "put the command behind --: mcp-bridge run -- COMMAND",
	"sse":                "put the URL at the end: mcp-bridge connect URL for a stdio client, mcp-bridge run URL to serve it",
	"streamablehttp":     "put the URL at the end: mcp-bridge connect URL for a stdio client, mcp-bridge run URL to serve it",
	"url":                "put the URL at the end: mcp-bridge run URL",
	"outputtransport":    "it is not needed: /mcp (Streamable HTTP) and /sse (HTTP+SSE) are both served",
	"ssepath":            "the paths are always /mcp and /sse",
	"messagepath":        "the paths are always /mcp and /sse",
	"streamablehttppath": "the paths are always /mcp and /sse",
	"healthendpoint":     "it is not needed: /healthz and /readyz are always served",
	"stateful":           "it is not needed: clients with and without sessions are served; see --share",
	"stateless":          "it is not needed: clients with and without sessions are served; see --share",
	"ssehost":            "use --host",
	"sseport":            "use --port",
	"address":            "use --listen HOST:PORT",
	"bind":               "use --listen HOST:PORT",
	"cors":               "use --allow-origin ORIGIN",
	"alloworigins":       "use --allow-origin ORIGIN",
	"apikey":             "put the key in a variable and name it: with --token-env NAME of run, or under access: in the file",
	"token":              "put the key in a variable and name it: with --token-env NAME of run, or under access: in the file; to send one to a server use --header",
	"oauth2bearer":       "use --header 'Authorization: Bearer ${TOKEN}'",
	"headers":            "use --header 'NAME: VALUE', once for each",
	"namedserver":        "put several servers in a file: mcp-bridge serve FILE",
	"namedserverconfig":  "mcp-bridge serve FILE",
	"configfile":         "use -c FILE",
	"servername":         "use --name",
	"quiet":              "use --log-level error",
	"silent":             "use --log-level error",
	"verbose":            "use --log-level debug",
	"debug":              "use --log-level debug",
	"passenvironment":    "use --env-all",
	"reload":             "restart the bridge to read a changed file",
}

// Explain makes the error of a flag that is wrong or unknown, with what to write
// instead.
func Explain(c *cobra.Command, err error) error {
	see := fmt.Sprintf("see '%s --help'", c.CommandPath())
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok && strings.Contains(err.Error(), "missing unit in duration") {
		return exit.Usagef("--%s is %s: add a unit, such as %[2]ss", bad.GetFlag().Name, bad.GetValue())
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 {
		return exit.Usagef("%w (%s)", err, see)
	}
	name := unknown.GetSpecifiedName()
	if hint := elsewhere[strings.ReplaceAll(strings.ToLower(name), "-", "")]; hint != "" {
		return exit.Usagef("unknown flag --%s: %s (%s)", name, hint, see)
	}
	if run, _, _ := c.Find([]string{"run"}); !c.HasParent() && run != c && run.Flags().Lookup(name) != nil {
		return exit.Usagef("--%s is a flag of a command, and belongs behind it: mcp-bridge run --%[1]s … (%s)", name, see)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := similar.Names(name, names); len(near) > 0 {
		return exit.Usagef("unknown flag: --%s: did you mean --%s? (%s)", name, strings.Join(near, " or --"), see)
	}
	return exit.Usagef("%w (%s)", err, see)
}
