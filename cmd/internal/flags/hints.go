package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// elsewhere maps flags of similar programs to hints. The flags of a line share a hint. Flags are in lower case without
// -, as they are compared.
var elsewhere = func() map[string]string {
	all := map[string]string{}
	for _, line := range [][2]string{
		{"stdio command", "put the command behind --: mcp-bridge run -- COMMAND"},
		{"sse streamablehttp", "put the URL at the end: mcp-bridge connect URL for a stdio client, mcp-bridge run URL to serve it"},
		{"url", "put the URL at the end: mcp-bridge run URL"},
		{"outputtransport server", "it is not needed: /mcp (Streamable HTTP) and /sse (HTTP+SSE) are both served"},
		{"ssepath messagepath streamablehttppath endpoint sseendpoint streamendpoint", "the paths are always /mcp and /sse"},
		{"type servertype", "use --transport, or leave it out: the transport is detected"},
		{"protocol upstreamprotocol", "use --era legacy or modern, or leave it out: it is detected"},
		{"modern nomodern protocolversion", "use --offer legacy for clients up to 2025-11-25 only"},
		{"healthendpoint", "it is not needed: /healthz and /readyz are always served"},
		{"stateful", "it is not needed: it is the default, with a process or connection for each session"},
		{"stateless", "use --share call, for a process or connection for each request"},
		{"baseurl", "it is not needed; behind a proxy write base_path: /PATH into a configuration file (--base-url is for OpenAPI documents)"},
		{"ssehost", "use --host"},
		{"p sseport", "use --port"},
		{"address bind", "use --listen HOST:PORT"},
		{"cors alloworigins corsalloworigins", "use --allow-origin ORIGIN"},
		{"exposeheader corsaddallowedheader", "it is not needed: web pages may send and read what MCP needs"},
		{"apikey k", "put the key in a variable and name it: with --token-env NAME of run, or under access: in the file"},
		{"token", "put the key in a variable, and name the variable with --token-env NAME"},
		{"strictauth", "it is not needed: with a key, everything but /healthz and the status of /readyz wants it"},
		{"oauth2bearer", "use --header 'Authorization: Bearer ${TOKEN}'"},
		{"headers", "use --header 'NAME: VALUE', once for each"},
		{"headerfile", "write headers: into a file, and use mcp-bridge serve FILE or mcp-bridge connect NAME -c FILE"},
		{"namedserver", "put several servers in a file: mcp-bridge serve FILE"},
		{"c f file config configfile namedserverconfig", "write mcp-bridge serve FILE, or -c FILE where a command has that"},
		{"servername n", "use --name"},
		{"quiet silent", "use --log-level error"},
		{"verbose debug", "use --log-level debug"},
		{"e", "use --env NAME=VALUE"},
		{"passenvironment", "use --env-all"},
		{"envpath", "write env_file: FILE into a configuration file, under stdio:"},
		{"requesttimeout", "use --timeout, with a unit, such as 90s"},
		{"connectiontimeout connecttimeout", "use --handshake-timeout, with a unit, such as 90s"},
		{"sessiontimeout sessionidletimeout", "write session_idle: 30m into a configuration file"},
		{"gracefulshutdowntimeout", "write drain: 10s into a configuration file"},
		{"maxbodysize", "write max_message: 16MiB into a configuration file"},
		{"rootpath pathprefix", "write base_path: /PATH into a configuration file"},
		{"sslcert sslkey sslcertfile sslkeyfile", "write tls: { cert_file: …, key_file: … } into a configuration file"},
		{"sslca cacert verifyssl noverifyssl insecureskipverify", "use --ca-file FILE, or write ca_file: FILE into a configuration file, under http:; certificates are always checked"},
		{"allowhttp", "it is not needed: http:// works"},
		{"enableproxy", "it is not needed: HTTPS_PROXY and NO_PROXY count"},
		{"ignoretool", "write tools: { deny: [PATTERN] } into a configuration file"},
		{"keepalive pinginterval", "write ping: 30s into a configuration file"},
		{"staticoauthclientmetadata", "use --scope, --client-metadata-url or --callback for what it says; the bridge registers itself with the rest"},
		{"staticoauthclientinfo", "use --client-id, with --client-secret-env and --issuer if it has a secret"},
		{"clientsecret tokenurl", "write oauth: { client: { id: …, secret: …, token_url: … } } into a configuration file, under http:"},
		{"eventstore noeventstore", "it is not needed: clients always get what they missed, within bounds"},
		{"shell", "give the line to a shell: mcp-bridge run -- sh -c '…'"},
		{"tunnel", "there is none: other machines reach the bridge with --host 0.0.0.0 and --token-env NAME"},
		{"reload hotreload watch", "it is not needed: serve reads its file again when it has changed"},
	} {
		for name := range strings.FieldsSeq(line[0]) {
			all[name] = line[1]
		}
	}
	return all
}()

// keys maps flags of the command run to the keys of a server in the file.
var keys = map[string]string{
	"share": "share: all", "env": "env: { NAME: VALUE } under stdio:", "env-all": "env_pass: [\"*\"] under stdio:",
	"cwd": "cwd: FOLDER under stdio:", "header": "headers: { NAME: VALUE } under http:", "transport": "transport: sse under http:",
	"era": "era: legacy", "offer": "offer: legacy", "timeout": "timeout: 30s", "handshake-timeout": "handshake_timeout: 5m",
	"restart": "restart: false", "base-url": "base_url: URL under rest:",
	"mode": "mode: search under rest:", "expose": "expose: [RULE] under rest:", "read-only": "read_only: true under rest:",
}

// ForURL returns the text of an error with flags instead of settings of the file, for a user who gave a URL.
func ForURL(text string) string {
	return strings.NewReplacer(
		"configure headers for it, such as Authorization", "pass --header 'Authorization: Bearer ${TOKEN}', or sign in: mcp-bridge login URL",
		"in ca_file of the server, or in the variable", "with --ca-file FILE, or in the variable",
	).Replace(text)
}

// Explain returns the error for a wrong or unknown flag, with the right form.
func Explain(c *cobra.Command, err error) error {
	see := fmt.Sprintf("see '%s --help'", c.CommandPath())
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok && strings.Contains(err.Error(), "missing unit in duration") {
		return exit.Usagef("--%s is %s: add a unit, such as %[2]ss", bad.GetFlag().Name, bad.GetValue())
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return exit.Usagef("%w (%s)", err, see)
	}
	name, dashes := unknown.GetSpecifiedName(), "--"
	if c.Name() == "call" {
		see = fmt.Sprintf("an argument of the tool is written %s=VALUE; %s", name, see)
	}
	if len(name) == 1 {
		dashes = "-"
	}
	if hint := elsewhere[strings.ReplaceAll(strings.ToLower(name), "-", "")]; hint != "" {
		return exit.Usagef("unknown flag %s%s: %s (%s)", dashes, name, hint, see)
	}
	if len(name) == 1 {
		return exit.Usagef("%w (%s)", err, see)
	}
	if name == "token-env" && c.Name() == "serve" {
		return exit.Usagef("unknown flag --%s: write access: [{ name: NAME, token: \"${VARIABLE}\" }] into the file (%s)", name, see)
	}
	if key := keys[name]; key != "" && c.Name() == "serve" {
		return exit.Usagef("unknown flag --%s: it is a key of a server in the file: %s (%s)", name, key, see)
	}
	if run, _, _ := c.Find([]string{"run"}); !c.HasParent() && run != c && run.Flags().Lookup(name) != nil {
		return exit.Usagef("--%s is a flag of a command, and belongs behind it: mcp-bridge run --%[1]s … (%s)", name, see)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := similar.Names(name, names)
	if word, _, _ := strings.Cut(name, "-"); len(near) == 0 && slices.Contains(names, word) {
		near = []string{word}
	}
	if len(near) > 0 {
		return exit.Usagef("unknown flag: --%s: did you mean --%s? (%s)", name, strings.Join(near, " or --"), see)
	}
	return exit.Usagef("%w (%s)", err, see)
}
