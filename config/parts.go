package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
)

// settingFile is a file that a server's settings are made of: a change of its content is a
// change of the settings. Files that are followed otherwise, such as documents of APIs,
// are none.
type settingFile struct{ key, path string }

// settingFiles returns the parts of a server.
func (s *Server) settingFiles() []settingFile {
	var all []settingFile
	add := func(kind, ca, cert, key string) {
		all = append(all, settingFile{kind + ".ca_file", ca}, settingFile{kind + ".cert_file", cert}, settingFile{kind + ".key_file", key})
	}
	switch {
	case s.HTTP != nil:
		add("http", s.HTTP.CAFile, s.HTTP.CertFile, s.HTTP.KeyFile)
	case s.SSE != nil:
		add("sse", s.SSE.CAFile, s.SSE.CertFile, s.SSE.KeyFile)
	case s.Rest != nil:
		add("rest", s.Rest.CAFile, s.Rest.CertFile, s.Rest.KeyFile)
	}
	return slices.DeleteFunc(all, func(p settingFile) bool { return p.path == "" })
}

// Files returns the files that the configuration is made of, beside its own: those of
// variables of programs, and the certificates for servers. Whoever follows a
// configuration follows these too.
func (c *Config) Files() []string {
	var all []string
	for i := range c.Servers {
		s := &c.Servers[i]
		if s.Stdio != nil && s.Stdio.EnvFile != "" {
			all = append(all, s.Stdio.EnvFile)
		}
		for _, p := range s.settingFiles() {
			all = append(all, p.path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// digestFiles keeps what the parts of servers have in them, to be compared by Diff.
func (c *Config) digestFiles() {
	for i := range c.Servers {
		for _, p := range c.Servers[i].settingFiles() {
			if c.files == nil {
				c.files = map[string]string{}
			}
			if _, known := c.files[p.path]; !known {
				c.files[p.path] = Digest(p.path)
			}
		}
	}
}

// Stream reports whether what path names is a pipe or a device, such as a terminal: who
// reads it may wait, or take what others would have read.
func Stream(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir() && path != os.DevNull
}

// Digest returns a word that is another one when the content of a file is. A file that
// cannot be read has one too. A Stream is not read.
func Digest(path string) string {
	if Stream(path) {
		return "unreadable: it can be read only once"
	}
	data, err := readFile(path)
	if err != nil {
		return "unreadable: " + reason(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
