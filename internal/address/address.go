// Package address knows addresses as people write them: where to listen, under which
// names and paths something is reached, and what is this machine. Errors say only the
// rule: what was written may be a secret.
package address

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Listen returns the address to listen on that a text stands for: a port alone, such as
// 8808, is one of this machine. Any other text is returned as it is.
func Listen(text string) string {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		return net.JoinHostPort("127.0.0.1", text)
	}
	return text
}

// CheckListen returns what is wrong with an address to listen on.
func CheckListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return errors.New("expected HOST:PORT, such as 127.0.0.1:8808, or a port alone, which is one of this machine")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535; 0 picks a free one")
	}
	return nil
}

// Overlap reports whether two addresses cannot be listened on at once.
func Overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || Everywhere(hostA) || Everywhere(hostB)
}

// Everywhere reports whether a host to listen on is every network of the machine.
func Everywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Loopback reports whether an address to listen on can only be reached from this
// machine. An empty host means every address, which is not.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(Listen(listen))
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// Local reports whether the name of a host, in lower case, is this machine.
func Local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && a.Unmap().IsLoopback()
}

// BasePath returns the path below which something is served, without the slash at its end.
func BasePath(s string) (string, error) {
	trimmed := strings.TrimSuffix(s, "/")
	u, err := url.Parse(trimmed)
	switch {
	case trimmed == "":
		return "", nil
	case trimmed[0] != '/':
		return "", errors.New("must begin with a slash, such as /tools")
	case err != nil || u.Path != trimmed || path.Clean(trimmed) != trimmed || u.EscapedPath() != trimmed || strings.Contains(trimmed, "*"):
		return "", errors.New("must be a plain path such as /tools or /a/b, without query, dots, spaces, % or *")
	}
	return trimmed, nil
}

// Origin returns an origin as a browser sends it: in lower case and without the
// scheme's own port.
func Origin(s string) (string, error) {
	switch s {
	case "*":
		return "", errors.New(`"*" would let every website that a user visits call these servers: list the origins`)
	case "null":
		return "", errors.New(`"null" is the origin of any sandboxed page or local file: it cannot be allowed`)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || !IsHost(u.Host) {
		return "", errors.New("expected SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com")
	}
	if s != s[:len(u.Scheme)]+"://"+u.Host {
		return "", errors.New("expected nothing but SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com, without a slash at its end")
	}
	return OriginOf(&url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host)}), nil
}

// OriginOf returns the origin of a URL, without the scheme's own port.
func OriginOf(u *url.URL) string {
	own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(u.Host, own)
}

// Host returns a name under which something may be called, in lower case.
func Host(s string) (string, error) {
	if s == "*" {
		return "", errors.New(`"*" would switch the check of the Host header off: list the names`)
	}
	if !IsHost(s) {
		return "", errors.New("expected a name or an address, with or without a port, such as mcp.example.com")
	}
	return strings.ToLower(s), nil
}

// IsHost reports whether s can stand in a Host header. Names in other scripts
// arrive there in their ASCII form, so that is the form to write.
func IsHost(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		host = h
		if strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && a.Is6() && strings.HasSuffix(inner, "]")
	}
	return IsPlain(host)
}

// IsHTTP reports whether a text is a URL of HTTP, by how it begins.
func IsHTTP(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// Shown returns a URL without what may be a secret in it: its user and its query.
func Shown(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "the URL"
	}
	u.RawQuery, u.User = "", nil
	return u.String()
}

// IsPlain reports whether s consists of letters, digits, '_', '.' and '-': of what every
// client takes in names, too.
func IsPlain(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

// Hostname returns a host without its port and brackets, in lower case.
func Hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// Network returns what counts as one address: of IPv6, the network that one
// subscriber has.
func Network(a netip.Addr) netip.Prefix {
	if a = a.Unmap().WithZone(""); a.Is6() {
		p, _ := a.Prefix(64)
		return p
	}
	return netip.PrefixFrom(a, a.BitLen())
}
