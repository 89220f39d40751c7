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

// launchers are programs that start another one, which their arguments name. Of
// each: the word before that name, if there has to be one; the flags whose value
// is that name; and the flags that have another value.
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

// A version ends the name of a package, a file has an extension, and what every
// server's name says is left out.
var (
	versions   = regexp.MustCompile(`(.)(@|==|>=|~=|:|\[).*$`)
	extensions = regexp.MustCompile(`\.(exe|cmd|bat|py|js|mjs|cjs|ts|go|jar|sh)$`)
	common     = regexp.MustCompile(`^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$`)
	pythons    = regexp.MustCompile(`^python[\d.]+$`)
)

// generic are names that say nothing: the folder says more.
var generic = []string{"index", "main", "server", "app", "cli", "dist", "build", "src", "lib", "bin", "out", "start", "run", "mcp"}

// commandName makes the name of a server of the command line that starts it: that
// of the package, the image or the script, where it can be told.
func commandName(command []string) string {
	program := clean(command[0])
	if text, _ := launched(command); text != "" {
		return packageName(text, program)
	}
	return nameOf(program)
}

// launched returns what a launcher starts, empty for a command that is none, and where in
// command the arguments of what is started begin.
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

// Misplaced returns a warning about flags of f among the arguments of the program that command
// starts: who writes them there may mean the bridge. Values are not shown: they may be secrets.
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

// clean returns the last part of a path, without what ends the names of programs.
func clean(name string) string {
	name = strings.ToLower(name[strings.LastIndexAny(name, `/\`)+1:])
	return extensions.ReplaceAllString(name, "")
}

// packageName makes a name of that of a package, an image or a script. launcher is
// the name if that says nothing.
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

// urlName makes the name of a server of its URL: of the host, and of one on this
// machine, which has no name to speak of, of the port.
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

// nameOf makes a name by the rules for names: it appears in URLs and in the log.
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
