package front

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// client is a client that has registered here or has a metadata document.
type client struct {
	Name      string   `json:"n,omitempty"`
	Redirects []string `json:"r"`
	At        int64    `json:"t,omitempty"` // when it registered
	// keys or keysAt are the keys that authenticate the client. A client without both is public. Only a client with a
	// metadata document can have keys.
	keys   *jwks.Fixed
	keysAt string
}

// keyed reports whether the client authenticates with a key.
func (c *client) keyed() bool { return c.keys != nil || c.keysAt != "" }

// documentLife returns the maximum lifetime of the client's document. A document with keys, or with their address,
// lives as long as keys do.
func (c *client) documentLife() time.Duration {
	if c.keyed() {
		return keysMost
	}
	return documentMost
}

const (
	maxRedirects = 8
	maxAddresses = 2 << 10 // bytes of all redirect addresses
	maxName      = 100
)

// kind is the kind of a redirect address.
type kind int

const (
	dangerous kind = iota // never allowed
	program               // a program, by its own scheme: allowed if the settings list it
	web                   // a website
	machine               // a program on the user's machine
)

// readable reports whether users can recognize the real host of an address. Letters of other alphabets may look like
// ASCII, and even a slash can hide in a host as %E2%88%95.
func readable(address string, u *url.URL) bool {
	return !strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '"' }) &&
		!strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '%' })
}

// validHost reports whether the host can exist. IPv4 in the form of IPv6 is refused, because browsers write such an
// address differently.
func validHost(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return address.IsHost(u.Host) && (err != nil || !a.Is4In6())
}

// classify parses a redirect address and returns its kind (I-103).
func classify(text string) (*url.URL, kind) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Fragment != "" || strings.Contains(text, "#") || u.User != nil || len(text) > maxAddresses || !readable(text, u) {
		return nil, dangerous
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // clients parse a malformed query in different ways
		return nil, dangerous
	}
	for _, name := range []string{"code", "state", "iss", "error"} { // the front's answer adds these, so they would occur twice
		if query.Has(name) {
			return nil, dangerous
		}
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case slices.Contains([]string{"javascript", "data", "file", "vbscript", "about", "blob", "ftp", "ws", "wss", "view-source"}, scheme):
		return nil, dangerous
	case scheme == "https" && validHost(u):
		return u, web
	case scheme == "http" && validHost(u) && discovery.Loopback(u.Hostname()):
		return u, machine
	case scheme == "http" || scheme == "https":
		return nil, dangerous
	}
	return u, program
}

// redirects returns the allowed addresses. If an address is dangerous, or there are too many, ok is false. Addresses
// that are only missing from the list are left out.
func (f *Front) redirects(all []string) (good []string, ok bool) {
	size := 0
	for _, a := range all {
		size += len(a)
		switch _, k := classify(a); {
		case k == dangerous:
			return nil, false
		case k == program && !slices.Contains(f.programs(), a):
		case !slices.Contains(good, a):
			good = append(good, a)
		}
	}
	return good, len(all) <= maxRedirects && size <= maxAddresses
}

// programs returns the allowed addresses with schemes of programs.
func (f *Front) programs() []string {
	if f.o.Redirects != nil && len(f.o.Redirects) == 0 {
		return nil
	}
	return append(slices.Clone(Redirects), f.o.Redirects...)
}

// allowsRedirect reports whether users may be sent to an address: the client has registered the address, which is still
// allowed. An address on the user's machine may have another port (RFC 8252 §7.3).
func (f *Front) allowsRedirect(c *client, address string) bool {
	u, k := classify(address)
	if k == dangerous || k == program && !slices.Contains(f.programs(), address) {
		return false
	}
	return slices.ContainsFunc(c.Redirects, func(given string) bool {
		if given == address {
			return true
		}
		g, gk := classify(given)
		return k == machine && gk == machine && g.Scheme == u.Scheme && g.Hostname() == u.Hostname() && g.EscapedPath() == u.EscapedPath() && g.RawQuery == u.RawQuery && g.Opaque == u.Opaque
	})
}

// register registers a client. The sealed client_id holds the whole registration (I-101).
func (f *Front) register(w http.ResponseWriter, r *http.Request) {
	if after := f.registering.take(network(f.o.Bridge.From(r))); after > 0 {
		tooMany(w, after)
		return
	}
	const bad, where = "invalid_client_metadata", "invalid_redirect_uri"
	var m struct {
		Name      string   `json:"client_name"`
		Redirects []string `json:"redirect_uris"`
		Grants    []string `json:"grant_types"`
		Responses []string `json:"response_types"`
	}
	data, err := io.ReadAll(httpio.MaxBytes(w, r.Body, 16<<10))
	if err != nil || json.Unmarshal(data, &m) != nil {
		fail(w, http.StatusBadRequest, bad, "the body must be a JSON object of at most 16 KiB, with client_name and redirect_uris")
		return
	}
	redirects, ok := f.redirects(m.Redirects)
	switch {
	case !ok:
		fail(w, http.StatusBadRequest, where, "redirect_uris must be at most 8, of at most 2 KiB, each https, or http on loopback, without user, fragment, code, state, iss and error")
		return
	case len(redirects) == 0:
		fail(w, http.StatusBadRequest, where, "none of the redirect_uris is allowed: use https, or http on loopback; the bridge's operator can allow others with redirects")
		return
	case len(m.Grants) > 0 && !slices.Contains(m.Grants, "authorization_code") || len(m.Responses) > 0 && !slices.Contains(m.Responses, "code"):
		fail(w, http.StatusBadRequest, bad, "only the authorization code grant is served: grant_types must have authorization_code, response_types code")
		return
	}
	c := client{
		Name:      displayName(m.Name),
		Redirects: redirects,
		At:        time.Now().Unix(),
	}
	answer(w, http.StatusCreated, "no-store", map[string]any{
		"client_id": f.sealed("client", c), "client_id_issued_at": c.At, "client_name": c.Name, "redirect_uris": c.Redirects,
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
	})
}

// displayName returns a name that can be shown, cut after maxName bytes.
func displayName(name string) string {
	name = sanitize.Text(strings.ToValidUTF8(name, ""))
	if len(name) <= maxName {
		return name
	}
	for cut := maxName; ; cut-- {
		if utf8.RuneStart(name[cut]) {
			return name[:cut] + "…"
		}
	}
}

// registered returns the client with an id, or nil if this front did not issue the id.
func (f *Front) registered(id string) *client {
	c := &client{}
	if !f.open("client", id, c) {
		return nil
	}
	return c
}
