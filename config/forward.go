package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// parseForward reads an entry of forward: "NAME" or "NAME as OTHER". For "NAME", To is empty.
func parseForward(s string) (bridge.Forward, error) {
	words := strings.Fields(s)
	switch {
	case len(words) == 1:
		return checkForward(bridge.Forward{From: words[0]})
	case len(words) == 3 && words[1] == "as":
		return checkForward(bridge.Forward{From: words[0], To: words[2]})
	}
	return bridge.Forward{}, errors.New(`expected the name of a header, such as X-Tenant, or "X-User-Token as Authorization"`)
}

// checkForward returns f with From in canonical form, or an error if the bridge must not forward that header.
func checkForward(f bridge.Forward) (bridge.Forward, error) {
	if !httpguts.ValidHeaderFieldName(f.From) {
		return f, errors.New("the text before \"as\" must be the name of a header, such as X-Tenant")
	}
	f.From = http.CanonicalHeaderKey(f.From)
	// The client's credentials are for the bridge. A server that got them could act elsewhere as the client.
	own := slices.Contains([]string{"Authorization", "X-Api-Key", "Cookie", "X-Real-Ip", "Via"}, f.From)
	if own || remote.Reserved(f.From) {
		return f, errors.New("this header is for the bridge and is never forwarded: " +
			`let the client send another one, and name it here, such as "X-User-Token as Authorization"`)
	}
	return f, nil
}

// nameForwards sets To where it is empty: to the same header, or for a child process to the variable of that name. It
// brings headers into canonical form.
func (s *Server) nameForwards() {
	for i := range s.Forward {
		f := &s.Forward[i]
		switch {
		case s.Stdio == nil && f.To != "":
			f.To = http.CanonicalHeaderKey(f.To)
		case s.Stdio == nil:
			f.To = f.From
		case f.To == "":
			f.To = strings.ToUpper(strings.ReplaceAll(f.From, "-", "_"))
		}
	}
}

// checkForwards adds the broken rules of forward that depend on the kind of the server.
func (s *Server) checkForwards(all *breaches) {
	if s.Share == ShareAll && len(s.Forward) > 0 {
		all.with("forward", "share", "cannot be used with share: all: one connection serves all callers, so it cannot have the headers of one")
	}
	names := map[string]bool{}
	for i, f := range s.Forward {
		rule := headerRule(f.To)
		if s.Stdio != nil {
			rule = cmp.Or(variableRule(f.To), s.valueRule(f.To))
		}
		if _, err := checkForward(f); err != nil { // only in a program: of a file, parseForward checks it
			all.add("forward", "is %q: %v", f.From+" as "+f.To, err)
			rule = ""
		}
		name := strings.ToUpper(f.To)
		if f.To != "" && names[name] && rule == "" {
			rule = "has the same name for the server as another item: keep one"
		}
		names[name] = true
		if rule != "" {
			all.with(fmt.Sprintf("forward: item %d", i+1), "", rule)
		}
	}
}

func headerRule(to string) string {
	switch {
	case !httpguts.ValidHeaderFieldName(to):
		return `has an invalid name of a header after "as"`
	case remote.Reserved(to):
		return "becomes a header that the bridge sets itself: choose another one after \"as\""
	}
	return ""
}

// loaderPrefixes are prefixes of variables that control linkers, shells, runtimes, package managers and TLS libraries:
// the code that they load or run, and the certificates that they trust.
var loaderPrefixes = []string{
	"LD_", "DYLD_", "GCONV_", "GLIBC_", "BASH", "NODE_", "NPM_", "BUN_", "DENO_", "PIP_", "UV_", "PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_",
	"JAVA_", "JDK_", "MAVEN_", "GRADLE_", "DOTNET_", "RUSTC_", "CARGO_", "GIT_", "SSL_", "XDG_",
	"SSH_", "LESS", "CONDA_", "KRB5", "AWS_ENDPOINT_URL",
	"LUA_", "PHP_INI_", "OPENSSL_", "ERL_", "ELIXIR_ERL_", "R_PROFILE", "R_ENVIRON", "R_LIBS", "JULIA_",
}

// variableRule returns the rule that the name of a variable breaks, or "". It refuses variables that control which code
// a program runs, since a client could execute commands with them.
func variableRule(to string) string {
	name := strings.ToUpper(to)
	switch {
	case !strict.IsVariable(to):
		return `has an invalid name of a variable: write "HEADER as NAME", with letters, digits and '_' in NAME`
	case slices.ContainsFunc(loaderPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }),
		strings.HasSuffix(name, "_PROXY"), slices.Contains([]string{
			"PATH", "PATHEXT", "COMSPEC", "HOME", "TMPDIR", "TMP", "TEMP", "SHELL", "SHELLOPTS", "IFS", "ENV", "PS4", "PROMPT_COMMAND",
			"EDITOR", "VISUAL", "PAGER", "BROWSER", "CLASSPATH", "_JAVA_OPTIONS", "RUSTFLAGS", "VIRTUAL_ENV",
			"GOFLAGS", "GOPROXY", "GOENV", "GOPATH", "GOROOT", "GOBIN", "GOTOOLCHAIN", "GOWORK", "GOINSECURE", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GONOSUMCHECK", "GOSUMDB", "GOAUTH", "GOVCS", "GOCACHEPROG",
			// The operator alone chooses credentials, too.
			"PHPRC", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONFIG",
			"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "HOSTALIASES", "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS",
			"MYSQL_HOME", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE", "PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT",
		}, name):
		return `becomes a variable by which a client could change what the server runs: choose another one after "as"`
	}
	return ""
}

// valuePrefixes and valueEnds are parts of the names of variables that hold a value of the caller. No program takes
// code or its configuration from such variables.
var (
	valuePrefixes = []string{"X_", "MCP_"}
	valueEnds     = []string{"TOKEN", "KEY", "SECRET", "PASSWORD", "TENANT", "_PWD", "_USER", "_EMAIL", "_ID"}
)

// valueRule returns the rule that the name of a variable breaks, or "". It refuses a variable that some program may
// read for another purpose, since nobody can list what all programs read. It allows a variable that the
// operator sets in env, since the server then expects it.
func (s *Server) valueRule(to string) string {
	name := strings.ToUpper(to)
	for own := range s.Stdio.Env {
		if strings.EqualFold(own, name) {
			return ""
		}
	}
	if slices.ContainsFunc(valuePrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(valueEnds, func(e string) bool { return strings.HasSuffix(name, e) }) {
		return ""
	}
	return "becomes a variable that some program may read for what it runs: choose a name that begins with " + strings.Join(valuePrefixes, " or ") +
		" or ends with " + strings.Join(valueEnds, ", ") + "; or give it a value in the server's env, too"
}

// credentials are the headers that hold credentials.
var credentials = []string{"Authorization", "Cookie", "X-Api-Key"}
