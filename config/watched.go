package config

import (
	"slices"
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
