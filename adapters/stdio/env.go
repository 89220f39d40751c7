package stdio

import (
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
)

// A server gets only what programs need to run at all. The bridge's own
// environment holds secrets, its own and those of other servers.
//
// The lists are those of the official SDKs, and what they lack for programs to
// speak the user's language and find their temporary files; on Windows also
// what finding and running a .cmd file takes.
var (
	unixBase    = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
	windowsBase = []string{
		"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
	}
)

// environment is the whole environment of a child: the safe part of the
// bridge's own, and own, of which the later win. It is sorted and each name is
// in it once.
func environment(own ...map[string]string) []string {
	return compose(runtime.GOOS == "windows", os.Environ(), own...)
}

// variables are the headers that a server's allow-list forwards, which have the
// names of variables. Of several values a child gets the first.
func variables(forwarded http.Header) map[string]string {
	all := map[string]string{}
	for name, values := range forwarded {
		if len(values) > 0 && !isFunction(values[0]) { // a client must not bring code
			all[name] = values[0]
		}
	}
	return all
}

// isFunction reports whether old shells take the value of a variable for a
// function, and run what is in it.
func isFunction(value string) bool { return strings.HasPrefix(value, "()") }

// compose takes the operating system's rules as a parameter so that both are
// tested everywhere.
func compose(windows bool, bridge []string, own ...map[string]string) []string {
	inherited := func(name string) bool {
		return slices.Contains(unixBase, name) || strings.HasPrefix(name, "LC_")
	}
	same := func(name string) string { return name }
	if windows {
		inherited = func(name string) bool { return slices.Contains(windowsBase, strings.ToUpper(name)) }
		same = strings.ToUpper // names differ in case only by spelling
	}

	lines := map[string]string{} // by what makes a name the same
	for _, line := range bridge {
		name, value, _ := strings.Cut(line, "=")
		if inherited(name) && !isFunction(value) {
			lines[same(name)] = line
		}
	}
	for _, layer := range own {
		for _, name := range slices.Sorted(maps.Keys(layer)) { // sorted: which of Path and PATH wins must not be chance
			lines[same(name)] = name + "=" + layer[name]
		}
	}
	return slices.Sorted(maps.Values(lines))
}

// lookup is the value of a variable of env, empty if it is not set.
func lookup(env []string, name string) string {
	for _, line := range env {
		k, v, _ := strings.Cut(line, "=")
		if k == name || runtime.GOOS == "windows" && strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// lookPath finds the program as the child would: in the PATH of env, or from
// dir if the name has a separator. The result is absolute. Entries of PATH
// that are relative are passed over: which program runs must not depend on
// what lies in a working directory.
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

// program reports whether path can be run, on Windows with one of the
// extensions of PATHEXT added if need be.
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
	list := lookup(env, "PATHEXT")
	if list == "" {
		list = ".COM;.EXE;.BAT;.CMD"
	}
	exts := strings.Split(strings.ToLower(list), ";")
	if slices.Contains(exts, strings.ToLower(filepath.Ext(path))) {
		return append([]string{""}, exts...)
	}
	return exts // npx without extension is a shell script, npx.cmd runs
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
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: make it so (chmod +x) or run it by its interpreter: %w", path, fs.ErrPermission)
	}
	return nil
}
