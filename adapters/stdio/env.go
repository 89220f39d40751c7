package stdio

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/mcp-bridge/bridge/internal/glob"
)

// A server gets only the variables that programs need to run, and to reach the network. The bridge's
// environment may have secrets, of the bridge and of other servers.
//
// The first two lists are those of the official SDKs, with variables added for the user's language,
// for temporary files, and on Windows for .cmd files. npx and uvx need the other lists for a download
// through a company's proxy.
var (
	unixBase    = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
	windowsBase = []string{
		"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
	}
	proxies      = []string{"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} // also in lower case
	certificates = []string{"CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"}
)

// ofShells are variables that a shell sets for itself, and that no program misses.
var ofShells = []string{"_", "OLDPWD", "PWD", "SHLVL"}

// environment returns the whole environment of a child. From the bridge's environment it takes the
// variables that programs need, and those that match pass. It adds the variables of each map in
// own; if several have a name, the last map wins. The result is sorted. held are the names of the
// bridge's variables that the child does not get.
func environment(pass []string, own ...map[string]string) (env, held []string) {
	return compose(runtime.GOOS == "windows", os.Environ(), pass, own...)
}

// heldBack returns an error that names held variables without which a child may have failed, or
// nil. These are the variables that said, the child's output, names, and proxies with a password,
// which no output names. The error shows no values.
func heldBack(held []string, said string) error {
	named := strings.FieldsFunc(said, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	var all []error
	for _, name := range held {
		switch {
		case isProxy(name):
			all = append(all, fmt.Errorf("%s was not passed to it, because it has a password: if it needs that, --env %[1]s, or env_pass: [%[1]s] in the file", name))
		case len(name) > 2 && slices.Contains(named, name): // a shorter name may be any word
			all = append(all, fmt.Errorf("%s is set here and was not passed: --env %[1]s, or env_pass: [%[1]s] in the file", name))
		}
	}
	return errors.Join(all...)
}

func isProxy(name string) bool { return slices.Contains(proxies, strings.ToUpper(name)) }

// Passes reports whether a child may get a variable of that name, from Env or from the bridge's own
// environment.
func (c *Config) Passes(name string) bool {
	is := func(pattern string) bool { return glob.Match(pattern, name) }
	upper := strings.ToUpper(name)
	for own := range c.Env {
		if strings.EqualFold(own, name) {
			return true
		}
	}
	return slices.ContainsFunc(c.EnvPass, is) || isProxy(name) || slices.Contains(unixBase, upper) || slices.Contains(windowsBase, upper) || slices.Contains(certificates, upper)
}

// variables returns the forwarded headers as variables of the same names. If a header has several
// values, the variable has the first.
func variables(forwarded http.Header) map[string]string {
	all := map[string]string{}
	for name, values := range forwarded {
		if len(values) > 0 && !isFunction(values[0]) { // a client must not send code to run
			all[name] = values[0]
		}
	}
	return all
}

// isFunction reports whether old shells run the value of a variable as a function.
func isFunction(value string) bool { return strings.HasPrefix(value, "()") }

// compose is environment with the operating system as a parameter, so that tests cover both variants
// everywhere.
func compose(windows bool, bridge, pass []string, own ...map[string]string) (env, held []string) {
	base, same := unixBase, func(name string) string { return name }
	if windows {
		base, same = windowsBase, strings.ToUpper // the case of names does not matter
	}
	passed := func(name, value string) bool {
		switch {
		case slices.ContainsFunc(pass, func(pattern string) bool { return glob.Match(same(pattern), same(name)) }):
			return true
		case isProxy(name):
			return !strings.Contains(value, "@") // a value with a password is a secret, and needs pass
		}
		return slices.Contains(base, same(name)) || slices.Contains(certificates, same(name)) || !windows && strings.HasPrefix(name, "LC_")
	}

	lines := map[string]string{} // by normalized name
	for _, line := range bridge {
		name, value, _ := strings.Cut(line, "=")
		switch {
		case name == "" || isFunction(value):
		case passed(name, value):
			lines[same(name)] = line
		case !slices.Contains(ofShells, name):
			held = append(held, name)
		}
	}
	for _, layer := range own {
		for _, name := range slices.Sorted(maps.Keys(layer)) { // sorted, so that the same of Path and PATH always wins
			lines[same(name)] = name + "=" + layer[name]
		}
	}
	held = slices.DeleteFunc(held, func(name string) bool { _, own := lines[same(name)]; return own })
	return slices.Sorted(maps.Values(lines)), held
}

// lookup returns the value of a variable of env, or "" if it is not set.
func lookup(env []string, name string) string {
	for _, line := range env {
		k, v, _ := strings.Cut(line, "=")
		if k == name || runtime.GOOS == "windows" && strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// lookPath finds the program as the child would: in the PATH of env, or from dir if the name has a
// separator. The result is absolute. lookPath ignores relative entries of PATH, since files in a
// working directory must not decide which program runs.
func lookPath(file string, env []string, dir string) (string, error) {
	if strings.ContainsRune(file, '/') || strings.ContainsRune(file, filepath.Separator) {
		path, err := from(dir, file)
		if err != nil {
			return "", err
		}
		return program(path, env)
	}
	denied := ""
	for _, entry := range filepath.SplitList(lookup(env, "PATH")) {
		if !filepath.IsAbs(entry) {
			continue
		}
		path, err := program(filepath.Join(entry, file), env)
		if err == nil {
			return path, nil
		}
		if denied == "" && errors.Is(err, fs.ErrPermission) {
			denied = filepath.Join(entry, file)
		}
	}
	if denied != "" {
		return "", fmt.Errorf("%s is not executable: make it so or choose another command: %w", denied, fs.ErrPermission)
	}
	return "", fmt.Errorf("%w: install the program, give its full path in command, or set PATH in env", exec.ErrNotFound)
}

// program returns the path of a program that can be run: on Windows, perhaps with an extension of
// PATHEXT added. The error says why it cannot be run.
func program(path string, env []string) (string, error) {
	var first error
	for _, ext := range extensions(path, env) {
		err := executable(path + ext)
		if err == nil {
			return path + ext, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

func extensions(path string, env []string) []string {
	if runtime.GOOS != "windows" {
		return []string{""}
	}
	list := cmp.Or(lookup(env, "PATHEXT"), ".COM;.EXE;.BAT;.CMD")
	exts := strings.Split(strings.ToLower(list), ";")
	if slices.Contains(exts, strings.ToLower(filepath.Ext(path))) {
		return append([]string{""}, exts...)
	}
	return exts // not the bare path: npx is a shell script, and npx.cmd runs
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist: correct command: %w", path, fs.ErrNotExist)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name the program in it", path)
	}
	if _, err := exec.LookPath(path); runtime.GOOS != "windows" && errors.Is(err, fs.ErrPermission) { // LookPath asks the system about this user
		return fmt.Errorf("%s is not executable: make it so (chmod +x) or run it by its interpreter: %w", path, fs.ErrPermission)
	}
	return nil
}
