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

// realm is where an address is.
type realm int

const (
	public   realm = iota
	private        // of a company's or a cloud's own network
	loopback       // this machine
	link           // link-local, the credentials of a cloud, or no address of one machine
)

// shared are the addresses that carriers and clusters use inside (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// realmOf returns where an address is. One of IPv6 that stands for one of IPv4 is where
// that is.
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

// Outward returns the transport for requests to addresses that a server has named, with
// the certificates and the proxy of c. It connects to none that are link-local, on this
// machine or in a private network, unless c.URL itself is there. Addresses are looked at
// when a connection is made, since a name can stand for another one by then. inside lets it
// connect to private networks in any case, and trusted are addresses that the operator has
// named, whose hosts may be anywhere (I-214). Only these and the server's own host see the
// certificate of the client.
func Outward(c Config, inside bool, trusted ...string) (http.RoundTripper, error) {
	c.IdleTimeout, c.Refuses = 0, nil
	client, err := New(c)
	if err != nil {
		return nil, err
	}
	base := client.short.Transport.(*http.Transport)
	base.DisableKeepAlives = true // they are few and far between, and nobody closes them
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

// Strangers returns the transport for requests to addresses that strangers have named. It
// connects to none that are link-local, on this machine or in a private network, and has no
// proxy do so.
func Strangers() (http.RoundTripper, error) { return Outward(Config{}, false) }

// shown is a transport that shows a certificate to known hosts only.
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

type outward struct {
	home    string // in lower case, as all hosts are
	inside  bool
	blind   bool // what a proxy is asked for is not looked up here
	look    func(ctx context.Context, network, host string) ([]netip.Addr, error)
	trusted map[string]bool

	mu      sync.Mutex
	proxies map[string]bool // host:port of each
}

func newOutward(home string, inside bool) *outward {
	return &outward{home: strings.ToLower(home), inside: inside, look: net.DefaultResolver.LookupNetIP, proxies: map[string]bool{}, trusted: map[string]bool{}}
}

// asks returns what says which proxy a request takes: none where it may not be asked.
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

// through notes the address of a proxy, which may be anywhere.
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

// numeric finds other ways to write an address, such as 127.1 and 0x7f000001. We do not know
// them, but a proxy may. No public name ends so.
var numeric = regexp.MustCompile(`(?i)(^|\.)([0-9]+|0x[0-9a-f]*)\.?$`)

// global reports whether a host has a public address, or a name that ends as those of the
// internet do. wiki, wiki.corp and metadata.google.internal do not, nor does what is below
// home.arpa (RFC 8375).
func global(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return realmOf(a) == public
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	suffix, listed := publicsuffix.PublicSuffix(host)
	return (listed || strings.Contains(suffix, ".")) && strings.Contains(host, ".") && suffix != "arpa" && !strings.HasSuffix(suffix, ".arpa")
}

// named returns why a proxy may not be asked for a host. Names are the proxy's to look up, and
// it may be in a private network: a name that only such a network can know is refused, unless
// the server's own is one, too. Those that strangers have named are looked up here as well. One
// that is not known here may be known to the proxy alone, as all public ones may be.
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
		plain, err := idna.Lookup.ToASCII(host) // as net/http does: digits may be of any script
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

// may reports whether a connection to that address of a host may be made.
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
		if is == public { // who has that address may say that it has others too
			return false
		}
		there = there || is == where || is == loopback && where == private
	}
	return there
}
