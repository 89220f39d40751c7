// Package spelling converts the spellings of URIs. Clients, servers and the bridge may spell one resource in several
// ways.
package spelling

import (
	"net/url"
	"strconv"
	"strings"
)

// ports maps each scheme for which browsers have special rules to the scheme's default port.
var ports = map[string]string{"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21", "file": ""}

// Parsed returns the URI as a URL parser reads it (WHATWG URL, 4.4). It changes only parts that decide which resource
// the URI names. It does not use nlnwa/whatwg-url, which takes a second for a host of 80 KB, and which writes ü as
// %C3%BC, so that a pattern such as */ü does not match.
func Parsed(uri string) string {
	uri = strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
	uri = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, uri)
	begin, path, tail := split(uri)
	scheme, _, _ := strings.Cut(begin, ":")
	if _, web := ports[scheme]; web && path == "" {
		path = "/"
	}
	return begin + undotted(path) + tail
}

// split returns the parts of a URI before its path, the path, and the rest. Where case does not matter, it returns
// lower case. Only a path that begins with / has segments; any other path is in begin.
func split(uri string) (begin, path, tail string) {
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok {
		return uri, "", ""
	}
	scheme = strings.ToLower(scheme)
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, tail = rest[:i], rest[i:]
	}
	port, web := ports[scheme]
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
		return scheme + ":" + rest, "", tail // such as mailto:x
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
	return scheme + ":" + host, rest, tail
}

// undotted returns the path without the segments . and .., in any spelling.
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

// Decoded returns the text with its escapes decoded. An invalid escape stays.
func Decoded(uri string) string {
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

// overlong maps forms of path characters that UTF-8 forbids (RFC 3629, section 3), but that lenient decoders read.
var overlong = strings.NewReplacer("\xc0\xae", ".", "\xe0\x80\xae", ".", "\xf0\x80\x80\xae", ".", "\xc0\xaf", "/", "\xe0\x80\xaf", "/", "\xf0\x80\x80\xaf", "/", "\xc1\x9c", `\`)

// Lenient returns a decoded URI as a lenient server reads it. Such a server accepts overlong characters and ends each
// path segment at its parameters, so ..;x is the parent folder.
func Lenient(uri string) string {
	begin, path, tail := split(overlong.Replace(uri))
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return begin + undotted(strings.Join(segments, "/")) + tail
}

// Canonical returns the same spelling for all URIs that a client's URL type may make of one URI.
func Canonical(uri string) string { return encoded(Parsed(uri)) }

// CanonicalTemplate is Canonical for a URI template. The template expands to canonical URIs if the values of its
// variables do not have the segments . and .. (RFC 6570, section 3.1).
func CanonicalTemplate(text string) string {
	literal, rest, more := strings.Cut(text, "{")
	begin, path, tail := split(literal)
	name, _, _ := strings.Cut(begin, ":")
	_, web := ports[name]
	if web && path == "" && (!more || tail != "" || strings.IndexAny(rest, "?&#") == 0) { // otherwise, the host may continue in a variable
		path = "/"
	}
	if web || path != "" || !more {
		literal = begin + path + tail
	} else if scheme, host, ok := strings.Cut(literal, ":"); ok {
		literal = strings.ToLower(scheme) + ":" + host
	}
	out := encoded(literal)
	for more {
		expression, after, closed := strings.Cut(rest, "}")
		if !closed {
			return text // not a template
		}
		literal, rest, more = strings.Cut(after, "{")
		out += "{" + expression + "}" + encoded(literal)
	}
	return out
}

// encoded returns the text with every character encoded that URIs forbid, and with every escape decoded that is not
// needed (RFC 3986, section 6.2.2.2).
func encoded(uri string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(uri); i++ {
		c, escaped := uri[i], false
		if c == '%' && i+2 < len(uri) {
			if n, err := strconv.ParseUint(uri[i+1:i+3], 16, 8); err == nil {
				c, escaped = byte(n), true
				i += 2
			}
		}
		if unreserved := c == '-' || c == '.' || c == '_' || c == '~' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'; unreserved ||
			!escaped && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
