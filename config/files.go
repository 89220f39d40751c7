package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/joho/godotenv"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// resolveFiles makes relative paths in the settings v absolute, and checks the files.
func (d *decoder) resolveFiles(sec *strict.Section, v any) {
	switch c := v.(type) {
	case *stdio.Config:
		d.resolveStdio(sec, c)
	case *remote.Config:
		d.resolveRemote(sec, c)
	case *rest.Config:
		d.resolveRest(sec, c)
	case *TLS:
		d.resolveTLS(sec, c)
	case *Cluster:
		d.resolveCluster(sec, c)
	case *Access:
		d.resolveAccess(sec, c)
	case *OAuth:
		d.resolveOAuth(sec, c)
	case keyFile: // OAuthClient and front.Settings, for example
		d.resolveKey(sec, c)
	case *AccessLog:
		if c.To != "" && c.To != "stdout" && c.To != "stderr" {
			c.To = d.absolute(c.To)
		}
	}
}

// resolveAccess checks the key in the file TokenFile. Messages show nothing of the content.
func (d *decoder) resolveAccess(sec *strict.Section, a *Access) {
	if a.TokenFile == "" {
		return
	}
	a.TokenFile = d.absolute(a.TokenFile)
	key, err := auth.Read(a.TokenFile)
	if err == nil {
		if wrong := auth.Check(key); wrong != nil {
			err = fmt.Errorf("the secret in it %w", wrong)
		}
	}
	if err != nil {
		d.unusable(sec, "token_file", err)
		return
	}
	if info, err := os.Stat(a.TokenFile); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
		m := sec.Marks["token_file"]
		d.Warn(m.Line, "%stoken_file is %s: everybody on this machine can read it", sec.Where, m.Shown)
	}
}

func (d *decoder) resolveStdio(sec *strict.Section, c *stdio.Config) {
	if c.Cwd != "" {
		c.Cwd = d.absolute(c.Cwd)
		if info, err := os.Stat(c.Cwd); err != nil {
			d.unusable(sec, "cwd", files.Reason(err).Error())
		} else if !info.IsDir() {
			d.unusable(sec, "cwd", "not a folder")
		}
	}
	if c.EnvFile != "" {
		c.EnvFile = d.absolute(c.EnvFile)
		vars, err := readEnv(c.EnvFile)
		if err != nil {
			d.unusable(sec, "env_file", err)
		}
		maps.Copy(vars, c.Env)
		c.Env = vars
	}
	if m := sec.Marks["command"]; c.Command != "" && !m.Bad {
		if problem := d.find(c); problem != "" {
			d.Warn(m.Line, "%scommand is %s: %s", sec.Where, m.Shown, problem)
		}
	}
}

// unusable adds a fault for a key that names a file which cannot be used.
func (d *decoder) unusable(sec *strict.Section, key string, why any) {
	m := sec.Marks[key]
	d.Fault(m.Line, "%s%s is %s: %v", sec.Where, key, m.Shown, why)
	d.Faults[len(d.Faults)-1].Unset = true
}

func (d *decoder) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(d.dir, path)
}

// readEnv reads a dotenv file. Its error shows nothing of the content. The map is never nil.
func readEnv(path string) (map[string]string, error) {
	vars := map[string]string{}
	data, err := readFile(path)
	if err != nil {
		return vars, files.Reason(err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	read, err := godotenv.UnmarshalBytes(data)
	if err != nil {
		if line := faultyLine(data); line > 0 {
			return vars, fmt.Errorf("line %d of it is not of the form NAME=value", line)
		}
		return vars, errors.New("not a file of lines of the form NAME=value")
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if name == "" || strings.ContainsAny(name+read[name], "\x00") || strings.ContainsAny(name, "= \t") {
			return vars, errors.New("it has a line that is not of the form NAME=value")
		}
	}
	return read, nil
}

// faultyLine returns the first faulty line of a dotenv file, from 1, or 0 if the file has more than 1,000 lines. The
// library does not name the line, and its message shows the text.
func faultyLine(data []byte) int {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines) > 1000 {
		return 0
	}
	for n := len(lines) - 1; n >= 0; n-- { // backwards, since the beginning of a quoted value that spans lines is faulty, too
		if _, err := godotenv.UnmarshalBytes(bytes.Join(lines[:n], nil)); err == nil {
			return n + 1
		}
	}
	return 0
}

// find looks for the command where the start of the process will look, and returns the problem, or "". The problem is
// only a warning: the file may be for another machine, or the program may be installed later.
func (d *decoder) find(c *stdio.Config) string {
	if strings.ContainsRune(c.Command, filepath.Separator) || strings.Contains(c.Command, "/") {
		path := c.Command
		if !filepath.IsAbs(path) && c.Cwd != "" {
			path = filepath.Join(c.Cwd, path)
		}
		switch err := d.executable(path); {
		case errors.Is(err, fs.ErrPermission):
			return "permission denied: make it executable for this user"
		case err != nil:
			return "there is no such program"
		}
		return ""
	}
	path, ok := c.Env["PATH"]
	if !ok {
		path, _ = d.Env("PATH")
	}
	problem := "not found in PATH"
	for _, folder := range filepath.SplitList(path) {
		switch err := d.executable(filepath.Join(folder, c.Command)); {
		case err == nil:
			return ""
		case errors.Is(err, fs.ErrPermission):
			problem = "permission denied in " + folder + ": make it executable for this user"
		}
	}
	return problem
}

// executable returns why this user cannot execute the file, or nil. On Windows it tries the extensions. It remembers
// the result, since many servers may have the same program.
func (d *decoder) executable(path string) error {
	problem, known := d.programs[path]
	if !known {
		var whole string
		whole, problem = filepath.Abs(path) // LookPath would look for a name without a folder in PATH
		if problem == nil {
			_, problem = exec.LookPath(whole)
		}
		d.programs[path] = problem
	}
	return problem
}
