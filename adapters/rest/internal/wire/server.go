package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/address"
)

// endpoint is the server of an operation.
type endpoint struct {
	*url.URL
	// remote says that a document at a URL names the server, and not the operator. public says that
	// this document is at a public address.
	remote, public bool
	filled         bool // the URL contains values of Options.Variables
}

// server returns the address of an operation's server: the configured one, or the first that the
// operation, its path or the document names. If a document at a URL names none, the server is the one
// from which the document was read. op and doc may be nil.
func server(doc *openapi.Document, op *openapi.Operation, o *Options) (endpoint, error) {
	if o.BaseURL != "" {
		u, err := base(o.BaseURL)
		return endpoint{URL: u}, err
	}
	var servers []openapi.Server
	if op != nil {
		servers = op.Servers
	}
	if len(servers) == 0 && doc != nil {
		servers = doc.Servers
		if len(servers) == 0 && address.IsHTTP(doc.Location) {
			servers = []openapi.Server{{
				URL:    "/",
				Remote: true,
				Public: doc.Public,
			}}
		}
	}
	if len(servers) == 0 {
		return endpoint{}, errNowhere("")
	}
	text, filled, err := expand(servers[0], o.Variables)
	if err != nil {
		return endpoint{}, err
	}
	ref, err := url.Parse(text)
	if err != nil {
		return endpoint{}, errors.New("the server's address is not a URL: set base_url")
	}
	if !ref.IsAbs() {
		at, err := url.Parse(doc.Location)
		if err != nil || !address.IsHTTP(doc.Location) {
			return endpoint{}, errNowhere(text)
		}
		ref = at.ResolveReference(ref)
	}
	u, err := base(ref.String())
	return endpoint{
		URL:    u,
		remote: servers[0].Remote,
		public: servers[0].Public,
		filled: filled,
	}, err
}

func errNowhere(relative string) error {
	return fmt.Errorf("the document %w: pass --base-url URL, or set base_url in the file", Nowhere(relative))
}

// Nowhere is the error of a document without an address for the API. The text is the document's
// relative address, or empty if it has none.
type Nowhere string

// Error implements error.
func (n Nowhere) Error() string {
	why := ""
	if n != "" {
		why = ": " + strconv.Quote(string(n)) + " is relative, and the document is not at a URL"
	}
	return "does not say where the API is (servers" + why + ")"
}

// expand returns a server's address with the values of its variables. filled reports whether the
// address contains configured values.
func expand(s openapi.Server, values map[string]string) (text string, filled bool, err error) {
	text = s.URL
	for _, v := range s.Variables {
		value := v.Default
		if own, ok := values[v.Name]; ok {
			value = own
			filled = filled || strings.Contains(text, "{"+v.Name+"}")
		}
		if len(v.Enum) > 0 && !slices.Contains(v.Enum, value) {
			return "", false, fmt.Errorf("the server's variable %s must be one of %s", v.Name, strings.Join(v.Enum, ", "))
		}
		text = strings.ReplaceAll(text, "{"+v.Name+"}", value)
	}
	for name, value := range values { // also replaces variables that the document does not declare
		filled = filled || strings.Contains(text, "{"+name+"}")
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	if i := strings.IndexByte(text, '{'); i >= 0 {
		name, _, _ := strings.Cut(text[i+1:], "}")
		return "", false, fmt.Errorf("the server's address has a variable without a value in the document: set variables: { %s: … }, or base_url", name)
	}
	return text, filled, nil
}

// base parses the address of a server.
func base(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the server's address must be a URL such as https://api.example.com/v1")
	case u.User != nil:
		return nil, errors.New("the server's address must not hold a password: configure credentials")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// origins are the servers that credentials may go to.
type origins []*url.URL

func (o origins) has(u *url.URL) bool {
	return slices.ContainsFunc(o, func(one *url.URL) bool { return remote.SameOrigin(one, u) })
}

// originOf returns the origin of an address.
func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// inside reports whether an address, as written, is on this machine or in a private network. Host
// names are checked when they are dialled.
func inside(u *url.URL) bool {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	a, err := netip.ParseAddr(host)
	return address.Local(host) || err == nil && !remote.Public(a)
}

// Blocked reports whether no API can be at an address: see remote.LinkLocal. Host names are checked
// when they are dialled. Since a proxy dials instead of the bridge, Blocked also covers hosts that
// some programs read as an IP address, such as 2852039166.
func Blocked(u *url.URL) bool {
	host := u.Hostname()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // as when dialling: the digits may be of another script
		host = ascii
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return remote.LinkLocal(a)
	}
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	return last != "" && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(strings.ToLower(last), "0x"))
}
