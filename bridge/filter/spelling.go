package filter

import (
	"net/url"
	"strings"

	"github.com/mcp-bridge/bridge/internal/glob"
)

// spellings returns the unchanged URI, its form in a URL parser, and its form in a server that decodes it first. One
// resource has many spellings: servers of the TypeScript and Python SDKs parse URLs, and take Demo://a/x/../b for
// demo://a/b. A hidden resource must be hidden under all of them.
func spellings(uri string) [3]string {
	s := [3]string{uri, uri, uri}
	s[1] = plain(uri)
	if strings.Contains(uri, "%") {
		s[2] = plain(decoded(uri))
	} else {
		s[2] = s[1]
	}
	return s
}

// decoded returns the text without its escapes. An invalid escape stays.
func decoded(uri string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(uri, '%')
		if i < 0 {
			b.WriteString(uri)
			return b.String()
		}
		b.WriteString(uri[:i])
		if i+3 > len(uri) {
			b.WriteString(uri[i:])
			return b.String()
		}
		c, err := url.PathUnescape(uri[i : i+3])
		if err != nil {
			c = uri[i : i+3]
		}
		b.WriteString(c)
		uri = uri[i+3:]
	}
}

// plain returns the URI as a URL parser reads it (WHATWG URL, 4.4). It changes only parts that
// decide which resource the URI names. It does not use nlnwa/whatwg-url: that takes a second for a
// host of 80 KB. It also writes ü as %C3%BC, which a pattern such as */ü does not match.
func plain(uri string) string {
	uri = strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
	uri = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, uri)
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok {
		return uri
	}
	scheme = strings.ToLower(scheme)
	tail := ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, tail = rest[:i], rest[i:]
	}
	port, web := map[string]string{"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21", "file": ""}[scheme]
	if web {
		rest = strings.ReplaceAll(rest, `\`, "/")
		switch bare := strings.TrimLeft(rest, "/"); {
		case scheme != "file":
			rest = "//" + bare
		case !strings.HasPrefix(rest, "//"):
			rest = "///" + bare
		}
	}
	if !strings.HasPrefix(rest, "/") {
		return scheme + ":" + rest + tail // mailto:x and the like have no segments
	}
	host := ""
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, rest = after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			host, rest = after[:i], after[i:]
		}
		if web {
			host = strings.TrimSuffix(strings.ToLower(host), port)
		}
		if scheme == "file" && host == "localhost" {
			host = ""
		}
		host = "//" + host
	}
	return scheme + ":" + host + undotted(rest) + tail
}

// undotted returns the path without its segments . and .., in any spelling.
func undotted(path string) string {
	if path == "" || !strings.Contains(path, ".") && !strings.Contains(strings.ToLower(path), "%2e") {
		return path
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		case ".":
		default:
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// PassesURI is Passes for a URI, which must pass under all its spellings. Patterns are spelled in
// the same way, so that a pattern in unusual form still matches.
func (r *Rules) PassesURI(uri string) bool {
	forms := spellings(uri)
	like := func(pattern string, i int) bool {
		return glob.Match(pattern, forms[i]) || i > 0 && glob.Match(spellings(pattern)[i], forms[i])
	}
	for _, p := range r.Deny {
		for i := range forms {
			if like(p, i) {
				return false
			}
		}
	}
	for _, p := range r.Allow {
		all := true
		for i := range forms {
			all = all && like(p, i)
		}
		if all {
			return true
		}
	}
	return len(r.Allow) == 0
}
