package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// realm is the kind of network to which an address belongs.
type realm int

const (
	public   realm = iota
	private        // the network of a company or a cloud
	loopback       // this machine
	link           // link-local, the metadata address of a cloud, multicast, or no address of a machine
)

// shared is the address range for internal use by carriers and clusters (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// realmOf returns the realm of an address. An IPv6 address that embeds an IPv4 address has the
// realm of the IPv4 address.
func realmOf(a netip.Addr) realm {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsLoopback():
		return loopback
	case LinkLocal(a), a.IsUnspecified(), a.IsMulticast():
		return link
	case a.IsPrivate(), shared.Contains(a):
		return private
	case !a.Is6():
		return public
	}
	all, found := a.As16(), public
	for _, e := range embedding {
		var v4 [4]byte
		for i, at := range e.bytes {
			v4[i] = all[at]
		}
		if e.prefix.Contains(a) {
			found = max(found, realmOf(netip.AddrFrom4(v4)))
		}
	}
	return found
}

// Outward returns a transport for requests to addresses that a server has named, with the
// certificates and the proxy of c. It refuses addresses that are link-local, on this machine or in
// a private network, unless the host of c.URL itself is there. It checks the address of each
// connection, since the address of a name may change. inside allows private networks. The hosts of
// the addresses in trusted, which the operator has named, may be anywhere (I-214). Only these hosts
// and the server's own see the client certificate.
func Outward(c Config, inside bool, trusted ...string) (http.RoundTripper, error) {
	c.IdleTimeout, c.Refuses = 0, nil
	client, err := New(c)
	if err != nil {
		return nil, err
	}
	base := client.short.Transport.(*http.Transport)
	base.DisableKeepAlives = true // requests are rare, and no code closes the connections
	o := newOutward(client.url.Hostname(), inside)
	for _, address := range trusted {
		if u, err := url.Parse(address); err == nil {
			o.trusted[strings.ToLower(u.Hostname())] = true
		}
	}
	base.Proxy = o.asks(base.Proxy)
	if c.Dial == nil {
		base.DialContext = o.dial
	}
	if t := base.TLSClientConfig; t == nil || len(t.Certificates) == 0 && t.GetClientCertificate == nil {
		return base, nil
	}
	bare := base.Clone()
	bare.TLSClientConfig.Certificates, bare.TLSClientConfig.GetClientCertificate = nil, nil
	return &shown{o, base, bare}, nil
}

// Strangers returns a transport for requests to addresses that strangers have named. It refuses
// addresses that are link-local, on this machine or in a private network, even by a proxy.
func Strangers() (http.RoundTripper, error) { return Outward(Config{}, false) }

// shown is a transport that shows the client certificate only to home and trusted hosts.
type shown struct {
	o          *outward
	with, bare *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (s *shown) RoundTrip(r *http.Request) (*http.Response, error) {
	if host := strings.ToLower(r.URL.Hostname()); host == s.o.home || s.o.trusted[host] {
		return s.with.RoundTrip(r)
	}
	return s.bare.RoundTrip(r)
}

// outward decides to which hosts a transport may connect. All hosts are in lower case.
type outward struct {
	home    string // the server's own host; empty if strangers name the addresses
	inside  bool   // private networks are allowed
	blind   bool   // names that go to a proxy are not looked up here
	look    func(ctx context.Context, network, host string) ([]netip.Addr, error)
	trusted map[string]bool // hosts that may be anywhere

	mu      sync.Mutex      // guards proxies
	proxies map[string]bool // by host:port
}

func newOutward(home string, inside bool) *outward {
	return &outward{
		home:    strings.ToLower(home),
		inside:  inside,
		look:    net.DefaultResolver.LookupNetIP,
		proxies: map[string]bool{},
		trusted: map[string]bool{},
	}
}

// asks returns proxy with a check: the function selects the same proxies, but refuses a request
// that must not go through one. If proxy is nil, asks returns nil.
func (o *outward) asks(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(r *http.Request) (*url.URL, error) {
		at, err := proxy(r)
		if at != nil {
			o.through(at)
			if err := o.named(r.Context(), r.URL.Hostname()); err != nil {
				return nil, err
			}
		}
		return at, err
	}
}

// through records the address of a proxy, so that dial allows it wherever it is.
func (o *outward) through(at *url.URL) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.proxies[net.JoinHostPort(at.Hostname(), port(at))] = true
}

func (o *outward) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialLimit, KeepAlive: keepAlive}
	o.mu.Lock()
	proxy := o.proxies[address]
	o.mu.Unlock()
	if !proxy {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d.ControlContext = func(ctx context.Context, _, at string, _ syscall.RawConn) error {
			if a, err := netip.ParseAddrPort(at); err != nil || !o.may(ctx, host, a.Addr()) {
				return fmt.Errorf("%w: it is in another network than the server", ErrRefused)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// numeric matches other spellings of an address, such as 127.1 and 0x7f000001. The bridge does not
// parse these, but a proxy may. No public name ends so.
var numeric = regexp.MustCompile(`(?i)(^|\.)([0-9]+|0x[0-9a-f]*)\.?$`)

// global reports whether a host is a public address, or a name with a suffix of the internet. The
// names wiki, wiki.corp and metadata.google.internal have no such suffix, nor do names below home.arpa
// (RFC 8375).
func global(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return realmOf(a) == public
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	suffix, listed := publicsuffix.PublicSuffix(host)
	return (listed || strings.Contains(suffix, ".")) && strings.Contains(host, ".") && suffix != "arpa" && !strings.HasSuffix(suffix, ".arpa")
}

// named returns why requests to a host must not go through a proxy, or nil. The proxy looks up
// names, and may be in a private network. So named refuses a name that only a private network can
// have, unless the server's own name is such a name. It looks up names from strangers as well, and
// allows a name that is unknown here, since perhaps only the proxy can look up public names.
func (o *outward) named(ctx context.Context, host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if !o.may(ctx, host, a) {
			return ErrRefused
		}
		return nil
	}
	if lower := strings.ToLower(host); lower == o.home && lower != "" || o.trusted[lower] {
		return nil
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		plain, err := idna.Lookup.ToASCII(host) // as net/http does; the digits may be of any script
		if err != nil {
			return fmt.Errorf("%w: it is not the name of a host", ErrRefused)
		}
		return o.named(ctx, plain)
	}
	if numeric.MatchString(host) {
		return fmt.Errorf("%w: it is a number, which some programs take for an address", ErrRefused)
	}
	if (o.home == "" || global(o.home) && !o.inside) && !global(host) {
		return fmt.Errorf("%w: its name is one of a private network", ErrRefused)
	}
	if o.home != "" || o.blind {
		return nil
	}
	all, err := o.look(ctx, "ip", host)
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: its name cannot be looked up just now", ErrRefused)
	}
	for _, a := range all {
		if realmOf(a) != public {
			return fmt.Errorf("%w: it is in a private network", ErrRefused)
		}
	}
	return nil
}

// may reports whether a connection to that address of a host is allowed.
func (o *outward) may(ctx context.Context, host string, a netip.Addr) bool {
	where := realmOf(a)
	if where == public || o.trusted[strings.ToLower(host)] || o.inside && where == private {
		return true
	}
	own := []netip.Addr{}
	if at, err := netip.ParseAddr(o.home); err == nil {
		own = append(own, at)
	} else if own, err = o.look(ctx, "ip", o.home); err != nil {
		return false
	}
	there := false
	for _, at := range own {
		is := realmOf(at)
		if is == public { // whoever owns a public name may give it private addresses as well
			return false
		}
		there = there || is == where || is == loopback && where == private
	}
	return there
}
