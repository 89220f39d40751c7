package imports

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// bridged is a remote server that a file reaches by a bridge program, such as mcp-remote.
type bridged struct {
	program, url string
	kind         string // "http", "sse", or "" if the address decides
	headers      object
	secrets      map[string]string // values of secret variables that are in headers, by the variable
	notes        []string
}

// option is a flag of a bridge program.
type option struct {
	values int                               // how many words follow the flag
	effect func(b *bridged, values []string) // nil if the flag is not needed here
}

// notTaken is the effect of a flag without a counterpart.
func notTaken(name string) func(*bridged, []string) {
	return func(b *bridged, _ []string) { b.notes = append(b.notes, name+" is not taken over") }
}

// oneHeader reads NAME: VALUE.
func oneHeader(b *bridged, values []string) {
	if name, value, ok := strings.Cut(values[0], ":"); ok {
		b.header(name, value)
	}
}

func (b *bridged) header(name, value string) {
	b.headers[http.CanonicalHeaderKey(strings.TrimSpace(name))] = strings.TrimSpace(value)
}

// over sets the transport by the words of the programs.
func over(b *bridged, values []string) {
	switch values[0] {
	case "sse", "sse-only":
		b.kind = "sse"
	case "streamablehttp", "http-only":
		b.kind = "http"
	}
}

// address returns the effect of a flag whose value is the URL.
func address(kind string) func(*bridged, []string) {
	return func(b *bridged, values []string) { b.url, b.kind = values[0], kind }
}

// bridges has the flags of bridge programs for a remote server, by the program. A program with another flag stays a
// program, since it may be used otherwise.
var bridges = map[string]map[string]option{
	"mcp-remote": {
		"--header":                       {1, oneHeader},
		"--transport":                    {1, over},
		"--allow-http":                   {},
		"--debug":                        {},
		"--silent":                       {},
		"--enable-proxy":                 {},
		"--host":                         {1, notTaken("--host")},
		"--resource":                     {1, notTaken("--resource")},
		"--auth-timeout":                 {1, notTaken("--auth-timeout")},
		"--static-oauth-client-metadata": {1, notTaken("--static-oauth-client-metadata")},
		"--static-oauth-client-info":     {1, notTaken("--static-oauth-client-info")},
	},
	"supergateway": {
		"--sse":             {1, address("sse")},
		"--streamableHttp":  {1, address("http")},
		"--header":          {1, oneHeader},
		"--oauth2Bearer":    {1, func(b *bridged, values []string) { b.header("Authorization", "Bearer "+values[0]) }},
		"--logLevel":        {1, nil},
		"--outputTransport": {1, nil},
		"--protocolVersion": {1, notTaken("--protocolVersion")},
	},
	"mcp-proxy": {
		"-H":              {2, func(b *bridged, values []string) { b.header(values[0], values[1]) }},
		"--headers":       {2, func(b *bridged, values []string) { b.header(values[0], values[1]) }},
		"--transport":     {1, over},
		"--debug":         {},
		"--no-verify-ssl": {0, notTaken("--no-verify-ssl")},
		"--log-level":     {1, nil},
	},
}

// These patterns match a launcher of packages, its flags without values, the version behind a package, the port of a
// sign-in, and the folders of a program, but not the scope of a package.
var (
	runsPackages = regexp.MustCompile(`(?i)(?:^|[/\\])(?:npx|bunx|pnpx|uvx)(?:\.cmd|\.exe)?$`)
	bareFlag     = regexp.MustCompile(`^(?:-y|--yes|-q|--quiet|--)$`)
	packageEnd   = regexp.MustCompile(`(?:@|==)[\w.^~*-]+$`)
	digits       = regexp.MustCompile(`^\d+$`)
	folders      = regexp.MustCompile(`^[^@].*[/\\]`)
)

// bridgeOf returns the remote server of a command line that starts a bridge program for a URL, or nil. env has the
// variables of the program. If only an unknown flag stands in the way, stays says so.
func bridgeOf(words []string, env object) (_ *bridged, stays string) {
	if len(words) > 0 && runsPackages.MatchString(words[0]) {
		words = words[1:]
		for len(words) > 0 && bareFlag.MatchString(words[0]) {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return nil, ""
	}
	b := &bridged{program: packageEnd.ReplaceAllString(folders.ReplaceAllString(words[0], ""), ""), headers: object{}, secrets: map[string]string{}}
	options, known := bridges[b.program]
	if !known {
		return nil, ""
	}
	used := map[string]bool{}
	for words = words[1:]; len(words) > 0; {
		name, value, joined := strings.Cut(words[0], "=")
		if !strings.HasPrefix(name, "-") {
			switch {
			case b.url == "" && (strings.HasPrefix(words[0], "http://") || strings.HasPrefix(words[0], "https://")):
				b.url = words[0]
			case b.url == "" || !digits.MatchString(words[0]):
				return nil, ""
			}
			words = words[1:]
			continue
		}
		o, known := options[name]
		values := words[1:]
		if joined {
			values = append([]string{value}, values...)
		}
		if !known && b.url != "" {
			return nil, fmt.Sprintf("it stays %s, because %s has no counterpart here", b.program, name)
		} else if !known || len(values) < o.values {
			return nil, ""
		}
		if o.effect != nil {
			o.effect(b, b.filledIn(values[:o.values], env, used))
		}
		words = values[o.values:]
	}
	if token, is := env["API_ACCESS_TOKEN"]; is && b.program == "mcp-proxy" {
		used["API_ACCESS_TOKEN"] = true
		b.header("Authorization", "Bearer "+text(token))
	}
	if b.url == "" {
		return nil, ""
	}
	b.url, _, _ = strings.Cut(b.url, "#") // never sent
	b.notes = append(b.notes, fmt.Sprintf("%s is not needed: the bridge itself reaches the server", b.program))
	if b.program == "mcp-remote" && b.headers["Authorization"] == nil {
		b.notes = append(b.notes, "if the server wants a sign-in, add oauth: { login: true } under http:, and run mcp-bridge login NAME")
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !used[name] {
			b.notes = append(b.notes, "env: "+name+" is not taken over")
		}
	}
	return b, ""
}

// remoteHeaders returns the headers of a remote server, with references in place of secrets.
func (i *Import) remoteHeaders(s *server, b *bridged) map[string]string {
	headers := i.table(s, b.headers, variable(s.name)+"_")
	for _, name := range slices.Sorted(maps.Keys(b.secrets)) {
		for header, value := range headers {
			if b.secrets[name] != "" && strings.Contains(value, b.secrets[name]) {
				headers[header] = strings.ReplaceAll(value, b.secrets[name], i.credential(s, variable(s.name)+"_", name, b.secrets[name]))
			}
		}
	}
	return headers
}

// filledIn replaces ${NAME} by the variables of the program, as the program does.
func (b *bridged) filledIn(values []string, env object, used map[string]bool) []string {
	all := slices.Clone(values)
	for i := range all {
		all[i] = placeholder.ReplaceAllStringFunc(all[i], func(whole string) string {
			name := whole[2 : len(whole)-1]
			if env[name] == nil {
				return whole
			}
			used[name] = true
			if value := text(env[name]); looksSecret(name, value) {
				b.secrets[name] = value
			}
			return text(env[name])
		})
	}
	return all
}
