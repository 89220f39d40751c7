package remote

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
)

// ErrRefused means that nothing was sent, since Config.Refuses or Config.Outside forbids the address
// of the server.
var ErrRefused = errors.New("the server is at an address that nothing is sent to")

// control returns the function that a dialer calls before it connects to an address. It returns nil
// if all addresses are allowed.
func (c *Config) control() func(network, address string, _ syscall.RawConn) error {
	if c.Refuses == nil {
		return nil
	}
	return func(_, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || c.Refuses(at.Addr()) {
			return ErrRefused
		}
		return nil
	}
}

// FromInternet returns a context for a request to u. After the response, public reports whether the
// response came from an address of the internet. If the address is unknown, as behind a proxy, the
// name of the host decides.
func (c *Client) FromInternet(ctx context.Context, u *url.URL) (told context.Context, public func() bool) {
	var outside atomic.Bool // any connection was to a public address; a redirect may use a further one
	named := func() bool { return global(u.Hostname()) }
	proxy := c.short.Transport.(*http.Transport).Proxy
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			at, err := netip.ParseAddrPort(got.Conn.RemoteAddr().String())
			if err != nil && named() || err == nil && Public(at.Addr()) {
				outside.Store(true)
			}
		}}), func() bool {
			if proxy != nil {
				if at, err := proxy(&http.Request{URL: u}); err == nil && at != nil {
					return named()
				}
			}
			return outside.Load()
		}
}

// Public reports whether an address is one of the internet. An IPv6 address may embed an IPv4 address.
func Public(a netip.Addr) bool { return realmOf(a) == public }

// inner are addresses that are link-local, or at which clouds provide credentials to machines.
var inner = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local (RFC 3927), which most clouds use
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("fe80::/10"),          // link-local (RFC 4291)
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
}

// embedding are the prefixes of IPv6 addresses that embed an IPv4 address, and the indexes of its
// bytes.
var embedding = []struct {
	prefix netip.Prefix
	bytes  [4]int
}{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // IPv4-compatible (RFC 4291)
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // translated (RFC 2765)
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64 (RFC 6052)
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},  // NAT64 within a network (RFC 8215)
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}}, // 6to4 (RFC 3056)
}

// LinkLocal reports whether an address is link-local, or one at which a cloud provides credentials to
// machines. An IPv6 address may embed such an IPv4 address. There is no API at such an address, and
// the author of an API's description must not make the bridge send requests to it.
func LinkLocal(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, p := range inner {
		if p.Contains(a) {
			return true
		}
	}
	if !a.Is6() {
		return false
	}
	all := a.As16()
	for _, e := range embedding {
		var v4 [4]byte
		for i, at := range e.bytes {
			v4[i] = all[at]
		}
		if e.prefix.Contains(a) && LinkLocal(netip.AddrFrom4(v4)) {
			return true
		}
	}
	return false
}
