// Package address parses addresses as people write them: listen addresses, and names and paths of a service. It knows
// which addresses belong to this machine. Errors state only the rule, since the input may be a secret.
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

// Listen returns the listen address that a text means. A port alone, such as 8808, means 127.0.0.1. Any other text is
// returned unchanged.
func Listen(text string) string {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		return net.JoinHostPort("127.0.0.1", text)
	}
	return text
}

// CheckListen returns the fault of a listen address, or nil.
func CheckListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return errors.New("expected HOST:PORT, such as 127.0.0.1:8808, or only a port, which means 127.0.0.1")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535; 0 picks a free one")
	}
	return nil
}

// Overlap reports whether one process cannot listen on both addresses.
func Overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || Everywhere(hostA) || Everywhere(hostB)
}

// Everywhere reports whether the host of a listen address means every network of the machine.
func Everywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Loopback reports whether only this machine can reach a listen address. An empty host means every network, so the
// result is false.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(Listen(listen))
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// Local reports whether a host name, in lower case, means this machine.
func Local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && a.Unmap().IsLoopback()
}

// BasePath returns a path prefix without its trailing slash, or an error if it is not a valid one.
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

// Origin returns an origin in the form in which a browser sends it: in lower case, and without the default port of its
// scheme.
func Origin(s string) (string, error) {
	switch s {
	case "*":
		return "", errors.New(`"*" would let every website that a user visits call these servers: list the origins`)
	case "null":
		return "", errors.New(`"null" is the origin of any sandboxed page or local file: it cannot be allowed`)
	}
	u, err := url.Parse(s)
	if err == nil && (u.Scheme == "ws" || u.Scheme == "wss") {
		return "", errors.New("no page has such an origin: write http or https in place of ws and wss")
	}
	if err != nil || u.Scheme == "" || !IsHost(u.Host) {
		return "", errors.New("expected SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com")
	}
	if s != s[:len(u.Scheme)]+"://"+u.Host {
		return "", errors.New("expected nothing but SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com, without a slash at its end")
	}
	return OriginOf(&url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host)}), nil
}

// OriginOf returns the origin of a URL, without the default port of its scheme.
func OriginOf(u *url.URL) string {
	own := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(u.Host, own)
}

// Host returns the value of a Host header in lower case, or an error if it is not a valid one.
func Host(s string) (string, error) {
	if s == "*" {
		return "", errors.New(`"*" would switch the check of the Host header off: list the names`)
	}
	if !IsHost(s) {
		return "", errors.New("expected a name or an address, with or without a port, such as mcp.example.com")
	}
	return strings.ToLower(s), nil
}

// IsHost reports whether s can be the value of a Host header. Names in other scripts must be in their ASCII form.
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

// IsHTTP reports whether a text begins with http:// or https://.
func IsHTTP(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// Shown returns a URL without its user and query, which may be secret.
func Shown(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "the URL"
	}
	u.RawQuery, u.User = "", nil
	return u.String()
}

// IsPlain reports whether s has only letters, digits, '_', '.' and '-', which every client accepts
// in names.
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

// Network returns the network that counts as one client: for IPv4 the address itself, for IPv6 the /64 of a subscriber.
func Network(a netip.Addr) netip.Prefix {
	if a = a.Unmap().WithZone(""); a.Is6() {
		p, _ := a.Prefix(64)
		return p
	}
	return netip.PrefixFrom(a, a.BitLen())
}
