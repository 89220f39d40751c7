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
	"strconv"
	"strings"
	"time"

	"github.com/joho/godotenv"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
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

// keyFile are settings with the file of a private key.
type keyFile interface {
	Look(absolute func(string) string) (setting, remark string, fault error)
}

// resolveKey makes the path of the key file absolute, and checks the file.
func (d *decoder) resolveKey(sec *strict.Section, k keyFile) {
	if setting, remark, fault := k.Look(d.absolute); fault != nil {
		d.unusable(sec, setting, d.Redact(fault.Error()))
	} else if remark != "" {
		d.Warn(sec.Marks[setting].Line, "%s%s is %s: %s", sec.Where, setting, sec.Marks[setting].Shown, remark)
	}
}

// resolveRemote makes the paths of a remote server's files absolute, and checks the files. Wrong content is only a
// warning: someone may replace the file later, and only this server needs it.
func (d *decoder) resolveRemote(sec *strict.Section, c *remote.Config) {
	good := true
	for _, f := range []struct {
		key  string
		path *string
	}{{"ca_file", &c.CAFile}, {"cert_file", &c.CertFile}, {"key_file", &c.KeyFile}} {
		if *f.path == "" {
			continue
		}
		*f.path = d.absolute(*f.path)
		if info, err := os.Stat(*f.path); err != nil {
			d.unusable(sec, f.key, files.Reason(err).Error())
			good = false
		} else if info.IsDir() {
			d.unusable(sec, f.key, "is a directory")
			good = false
		}
	}
	if !good || c.Validate() != nil || c.CAFile == "" && c.CertFile == "" {
		return
	}
	if _, err := remote.New(*c); err != nil {
		message := d.Redact(strings.ReplaceAll(err.Error(), "\n", " "))
		name, _, _ := strings.Cut(message, ":")
		name, _, _ = strings.Cut(name, " ") // "cert_file and key_file"
		m, _ := sec.At(name)
		d.Warn(m.Line, "%s%s", sec.Where, message)
	}
}

// resolveText makes the path of a file absolute, and checks the file. A missing file is only a warning, since it may be
// created before the start.
func (d *decoder) resolveText(sec *strict.Section, key string, path *string) {
	m := sec.Marks[key]
	if *path == "" || m.Bad {
		return
	}
	shown := d.Redact(strconv.Quote(*path))
	*path = d.absolute(*path)
	if info, err := os.Stat(*path); err != nil {
		d.Warn(m.Line, "%s%s is %s: %s", sec.Where, key, shown, files.Reason(err))
	} else if info.IsDir() {
		d.Warn(m.Line, "%s%s is %s: is a directory", sec.Where, key, shown)
	}
}

// resolveRest makes the paths of an HTTP API's files absolute, and checks the files. The callers of Load read the
// document.
func (d *decoder) resolveRest(sec *strict.Section, c *rest.Config) {
	if c.Document == nil && !address.IsHTTP(c.OpenAPI) {
		d.resolveText(sec, "openapi", &c.OpenAPI)
	}
	for i := range c.Overlays {
		d.resolveText(sec, "overlays", &c.Overlays[i])
	}
	if c.KeepDir != "" {
		c.KeepDir = d.absolute(c.KeepDir)
	}
	for _, hook := range hooks(&c.Auth) {
		if len(hook.Command) > 0 && strings.ContainsAny(hook.Command[0], `/\`) { // a name without a folder is looked up in PATH
			hook.Command[0] = d.absolute(hook.Command[0])
		}
	}
	for i, item := range c.Trusted {
		if !strings.HasPrefix(item, ".") && !filepath.IsAbs(item) { // an origin
			continue
		}
		c.Trusted[i] = d.absolute(item)
		if info, err := os.Stat(c.Trusted[i]); err != nil || !info.IsDir() {
			d.Warn(sec.Marks["trusted"].Line, "%strusted: item %d: there is no such folder", sec.Where, i+1)
		}
	}
	d.resolveText(sec, "catalog: file", &c.Catalog.File)
	h := remote.Config{
		URL:         "http://localhost",
		CAFile:      c.CAFile,
		CertFile:    c.CertFile,
		KeyFile:     c.KeyFile,
		Proxy:       c.Proxy,
		IdleTimeout: c.IdleTimeout,
	}
	d.resolveRemote(sec, &h)
	c.CAFile, c.CertFile, c.KeyFile = h.CAFile, h.CertFile, h.KeyFile
}

func (d *decoder) resolveTLS(sec *strict.Section, t *TLS) {
	if t.CertFile == "" || t.KeyFile == "" {
		return // checkAccess and checkIncomplete report it
	}
	t.CertFile, t.KeyFile = d.absolute(t.CertFile), d.absolute(t.KeyFile)
	pair, key, err := t.pair()
	if err != nil {
		d.unusable(sec, key, err)
		if _, also := readFile(t.KeyFile); also != nil && key == "cert_file" {
			d.unusable(sec, "key_file", files.Reason(also).Error())
		}
		return
	}
	if end := pair.Leaf.NotAfter; end.Before(time.Now()) {
		m := sec.Marks["cert_file"]
		d.Warn(m.Line, "%scert_file is %s: the certificate ended on %s", sec.Where, m.Shown, end.UTC().Format(time.DateOnly))
	}
}

// resolveCluster checks that the file CAFile can be read.
func (d *decoder) resolveCluster(sec *strict.Section, c *Cluster) {
	if c.CAFile != "" {
		c.CAFile = d.absolute(c.CAFile)
		if _, err := readFile(c.CAFile); err != nil {
			d.unusable(sec, "ca_file", files.Reason(err).Error())
		}
	}
}

// resolveOAuth makes the paths of an issuer's files absolute, and checks the files.
func (d *decoder) resolveOAuth(sec *strict.Section, o *OAuth) {
	if o.JWKS != "" && !strings.Contains(o.JWKS, "://") {
		o.JWKS = d.absolute(o.JWKS)
		if data, err := readFile(o.JWKS); err != nil {
			d.unusable(sec, "jwks", files.Reason(err).Error())
		} else if err := jwks.Check(data); err != nil {
			d.unusable(sec, "jwks", err)
		}
	}
	if o.CAFile != "" {
		o.CAFile = d.absolute(o.CAFile)
		if _, err := jwks.Transport(o.CAFile); err != nil {
			d.unusable(sec, "ca_file", err)
		}
	}
}
