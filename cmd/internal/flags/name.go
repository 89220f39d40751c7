package flags

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// launchers lists programs that start another program, which an argument names. An entry has the words that must come
// before that name, the flags whose value is the name, and other flags with values.
var launchers = map[string]struct {
	words         []string
	names, values string
}{
	"npx":    {nil, "-p --package", "-c --call -w --workspace"},
	"bunx":   {nil, "-p --package", ""},
	"pnpx":   {nil, "", ""},
	"npm":    {[]string{"exec", "x"}, "--package", "-w --workspace"},
	"pnpm":   {[]string{"dlx", "exec"}, "--package", ""},
	"yarn":   {[]string{"dlx", "exec", "run"}, "-p --package", ""},
	"bun":    {[]string{"run", "x", ""}, "", ""},
	"uvx":    {nil, "--from", "--with -p --python --index-url --env-file"},
	"uv":     {[]string{"run"}, "", "--with -p --python --directory --project --env-file"},
	"pipx":   {[]string{"run"}, "--spec", "--python"},
	"python": {nil, "-m", "-c -W -X"},
	"node":   {nil, "", "-r --require --import --env-file -e --eval"},
	"deno":   {[]string{"run"}, "", ""},
	"docker": {[]string{"run"}, "", "-e --env --env-file -v --volume --mount -p --publish --name --network --net -u --user -w --workdir --entrypoint --platform --pull -m --memory --cpus --add-host --gpus -h --hostname -l --label"},
	"podman": {[]string{"run"}, "", "-e --env --env-file -v --volume --mount -p --publish --name --network --net -u --user -w --workdir --entrypoint --platform --pull -m --memory --cpus --add-host -h --hostname -l --label"},
	"go":     {[]string{"run"}, "", "-C -tags -mod -exec"},
}

// These patterns match parts that a name loses: the version of a package, the extension of a file, and words that all
// names of servers have.
var (
	versions   = regexp.MustCompile(`(.)(@|==|>=|~=|:|\[).*$`)
	extensions = regexp.MustCompile(`\.(exe|cmd|bat|py|js|mjs|cjs|ts|go|jar|sh)$`)
	common     = regexp.MustCompile(`^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$`)
	pythons    = regexp.MustCompile(`^python[\d.]+$`)
)

// generic lists meaningless names, which the name of the folder replaces.
var generic = []string{"index", "main", "server", "app", "cli", "dist", "build", "src", "lib", "bin", "out", "start", "run", "mcp"}

// commandName returns a server's name from its command line: the name of the package, the image or the script, or else
// of the program.
func commandName(command []string) string {
	program := clean(command[0])
	if text, _ := launched(command); text != "" {
		return packageName(text, program)
	}
	return nameOf(program)
}

// launched returns the program that a launcher starts, or "" for another command, and the index of that program's
// arguments.
func launched(command []string) (text string, own int) {
	l, launches := launchers[pythons.ReplaceAllString(clean(command[0]), "python")]
	if !launches {
		return "", 1
	}
	i := 1
	if l.words != nil && (len(command) == 1 || !slices.Contains(l.words, command[1])) {
		if !slices.Contains(l.words, "") {
			return "", 1
		}
	} else if l.words != nil {
		i++
	}
	for ; i < len(command); i++ {
		flag, value, set := strings.Cut(command[i], "=")
		names := slices.Contains(strings.Fields(l.names), flag)
		switch {
		case !strings.HasPrefix(flag, "-"):
			return cmp.Or(text, command[i]), i + 1
		case names && set:
			text = cmp.Or(text, value)
		case names && i+1 < len(command):
			i++
			if text = cmp.Or(text, command[i]); flag == "-m" {
				return text, i + 1
			}
		case slices.Contains(strings.Fields(l.values), flag) && !set:
			i++
		}
	}
	return text, len(command)
}

// Misplaced returns a warning about flags of f among the arguments of a program, which may be meant for the bridge. It
// shows no values, which may be secrets.
func Misplaced(f *pflag.FlagSet, command []string) []string {
	var ours []string
	_, own := launched(command)
	for _, arg := range command[own:] {
		flag, _, _ := strings.Cut(arg, "=")
		if name, long := strings.CutPrefix(flag, "--"); long && f.Lookup(name) != nil && !slices.Contains(ours, flag) {
			ours = append(ours, flag)
		}
	}
	if len(ours) == 0 {
		return nil
	}
	verb := "goes"
	if len(ours) > 1 {
		verb = "go"
	}
	return []string{fmt.Sprintf("%s %s to the server: flags of mcp-bridge belong before the command. If the server is meant, write -- before the command", strings.Join(ours, " "), verb)}
}

// clean returns the last part of a path, without a program's extension.
func clean(name string) string {
	name = strings.ToLower(name[strings.LastIndexAny(name, `/\`)+1:])
	return extensions.ReplaceAllString(name, "")
}

// packageName returns a name for a package, an image or a script. If this name is meaningless, packageName returns the
// name of launcher.
func packageName(text, launcher string) string {
	parts := strings.FieldsFunc(strings.TrimPrefix(text, "@"), func(r rune) bool { return r == '/' || r == '\\' })
	for _, part := range slices.Backward(parts) {
		name := strings.ReplaceAll(clean(versions.ReplaceAllString(part, "$1")), "_", "-")
		if slices.Contains(generic, name) || strings.Trim(name, ".") == "" {
			continue
		}
		if short := common.ReplaceAllString(name, ""); short != "" && !slices.Contains(generic, short) {
			name = short
		}
		return nameOf(name)
	}
	return nameOf(launcher)
}

// urlName returns a server's name from its URL: the host, or for this machine the port.
func urlName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "server"
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		if host = "local"; u.Port() != "" {
			host += "-" + u.Port()
		}
	}
	return nameOf(host)
}

// nameOf turns any text into a valid name for URLs and logs.
func nameOf(text string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text)), "-")
	switch name {
	case "", "mcp", "sse", "messages", "hooks", "healthz", "readyz", "metrics":
		return "server"
	}
	return name[:min(len(name), 64)]
}
