package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"

	"github.com/mcp-bridge/bridge/internal/files"
)

// settingFile is a file whose content is a part of a server's settings, such as a certificate. Files that the server
// itself follows, such as the document of an API, are not.
type settingFile struct{ key, path string }

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
	return slices.DeleteFunc(all, func(s settingFile) bool { return s.path == "" })
}

// Files returns the files besides the configuration file that the bridge watches for changes: environment files,
// certificates, and values of arguments, of servers.
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
		for _, o := range s.Tools.Override {
			for _, arg := range o.Args {
				if arg.File != "" {
					all = append(all, arg.File)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// digestFiles stores digests of the settingFiles of all servers, which Diff compares.
func (c *Config) digestFiles() {
	for i := range c.Servers {
		for _, s := range c.Servers[i].settingFiles() {
			if c.files == nil {
				c.files = map[string]string{}
			}
			if _, known := c.files[s.path]; !known {
				c.files[s.path] = Digest(s.path)
			}
		}
	}
}

// Stream reports whether path is a pipe or a device, such as a terminal. To read it may block, or take input from
// another reader.
func Stream(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir() && path != os.DevNull
}

// Digest returns a digest of the content of a file. For a file that cannot be read, and for a Stream, it returns a text
// that says so.
func Digest(path string) string {
	if Stream(path) {
		return "unreadable: it can be read only once"
	}
	data, err := readFile(path)
	if err != nil {
		return "unreadable: " + files.Reason(err).Error()
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
