package flags

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
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
	l, launches := launchers[pythons.ReplaceAllString(program, "python")]
	if !launches {
		return nameOf(program)
	}
	args := command[1:]
	if l.words != nil && (len(args) == 0 || !slices.Contains(l.words, args[0])) {
		if !slices.Contains(l.words, "") {
			return nameOf(program)
		}
	} else if l.words != nil {
		args = args[1:]
	}
	for i := 0; i < len(args); i++ {
		flag, value, set := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(flag, "-"):
			return packageName(args[i], program)
		case slices.Contains(strings.Fields(l.names), flag) && set:
			return packageName(value, program)
		case slices.Contains(strings.Fields(l.names), flag) && i+1 < len(args):
			return packageName(args[i+1], program)
		case slices.Contains(strings.Fields(l.values), flag) && !set:
			i++
		}
	}
	return nameOf(program)
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
