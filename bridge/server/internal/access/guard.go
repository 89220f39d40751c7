package access

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// guard refuses requests that a web page in a victim's browser could send. Such requests have a foreign Origin, or go
// to a loopback listener under another name (DNS rebinding; ). It also answers preflights. It is
// immutable: a new configuration has a new guard.
type guard struct {
	origins []string       // allowed in addition to the listener's own origins; an empty list, unlike nil, allows none
	hosts   []string       // allowed in addition to loopback names
	proxies []netip.Prefix // trusted: their X-Forwarded headers are used
	keyed   bool           // everything worth reading needs a key, which no page of another site has
	rules   bool           // access rules exist: a page of this machine may belong to any of its users
	forward []string       // headers that servers get, in canonical form

	log      *slog.Logger
	refusals *logs.Limiter // of lines about refused requests
}

func newGuard(c *config.Config, log *slog.Logger) *guard {
	g := &guard{
		origins:  c.AllowedOrigins,
		hosts:    c.AllowedHosts,
		proxies:  c.TrustedProxies,
		keyed:    len(c.Access) > 0 && !c.PublicStatus,
		rules:    len(c.Access) > 0,
		log:      log,
		refusals: new(logs.Limiter),
	}
	for _, s := range c.Servers {
		for _, f := range s.Forward {
			g.forward = append(g.forward, f.From)
		}
	}
	return g
}

// These are the values of the CORS headers. OpenTelemetry adds the last three of corsHeaders to the requests
// of a page by itself.
const (
	corsMethods = "GET, POST, DELETE, OPTIONS"
	corsHeaders = "Content-Type, Accept, Authorization, X-API-Key, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-ID, traceparent, tracestate, baggage"
	corsExposed = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
	corsMaxAge  = "7200"
)

// nosniff makes browsers accept the Content-Type as it is.
var nosniff = []string{"nosniff"}

// checkHost reports whether the Host of a request is served here, and its path has no percent-encoding. Otherwise,
// checkHost answers the request. In any case, checkHost sets nosniff.
func (g *guard) checkHost(w http.ResponseWriter, r *http.Request) bool {
	w.Header()["X-Content-Type-Options"] = nosniff
	if r.URL.RawPath != "" { // a proxy's rules for paths would not see the server's name
		answer.Refuse(w, http.StatusNotFound, "not found: write the path without percent-encoding")
		return false
	}
	if host := g.requestedHost(r); !g.hostAllowed(host, onLoopback(r)) {
		return g.deny(w, r, "host", host, "this Host is not allowed: list it in allowed_hosts of the configuration file, or pass --allow-host to run")
	}
	return true
}

// requestedHost returns the host that the client requested: behind a trusted proxy, the first host in
// X-Forwarded-Host.
func (g *guard) requestedHost(r *http.Request) string {
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" && g.trusts(r.RemoteAddr) {
		first, _, _ := strings.Cut(forwarded, ",")
		return strings.TrimSpace(first)
	}
	return r.Host
}

// checkOrigin reports whether a request comes from an allowed web page, or from no web page. checkOrigin answers all
// other requests itself. checkOrigin also answers preflights, and then reports false.
func (g *guard) checkOrigin(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		// Browsers send Sec-Fetch-Site also where they send no Origin: for images, links, and
		// fetches whose answer the page cannot read.
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !strings.HasSuffix(r.URL.Path, "/healthz") {
			page, _ := url.Parse(r.Header.Get("Referer")) // only its origin is logged
			if page == nil {
				page = &url.URL{}
			}
			return g.deny(w, r, "origin", address.OriginOf(page), "pages of other sites are not allowed: list their origin in allowed_origins of the configuration file, or pass --allow-origin to run, and make them use CORS")
		}
		return true
	}
	if len(origins) > 1 || !g.originAllowed(origins[0], g.requestedHost(r), onLoopback(r)) {
		return g.deny(w, r, "origin", strings.Join(origins, ", "), "this Origin is not allowed: list it in allowed_origins of the configuration file, or pass --allow-origin to run")
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", corsExposed)
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders+g.furtherHeaders(r.Header["Access-Control-Request-Headers"]))
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// maxFurtherHeaders bounds the further headers of one preflight.
const maxFurtherHeaders = 64

// furtherHeaders returns, as the rest of a comma-separated list, those headers of a preflight that a server may get:
// headers of forward, and Mcp-Param headers. The tools define the Mcp-Param headers, so the bridge cannot list them
// ahead (2026-07-28, B8).
func (g *guard) furtherHeaders(wanted []string) string {
	list, n := "", 0
	for _, line := range wanted {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if n < maxFurtherHeaders && httpguts.ValidHeaderFieldName(name) && (isParam(name) || slices.Contains(g.forward, http.CanonicalHeaderKey(name))) {
				list += ", " + name
				n++
			}
		}
	}
	return list
}

func isParam(header string) bool {
	return len(header) > len(era.HeaderParam) && strings.EqualFold(header[:len(era.HeaderParam)], era.HeaderParam)
}

// deny refuses a request because of a header's value. deny logs the refusal for the operator, at most once in
// RejectedLogEvery. deny returns false.
func (g *guard) deny(w http.ResponseWriter, r *http.Request, header, value, why string) bool {
	if more, due := g.refusals.Due(RejectedLogEvery); due {
		g.log.Info("request refused", header, fmt.Sprintf("%.200s", value), "from", g.client(r).String(), "err", why, "more", more)
	}
	answer.Refuse(w, http.StatusForbidden, why)
	return false
}

// trusts reports whether the peer is a trusted proxy, whose X-Forwarded headers are used.
func (g *guard) trusts(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	return g.proxy(at.Addr().Unmap())
}

// client returns the address that a request comes from. The address is the peer's, or behind trusted proxies the last
// address in X-Forwarded-For that is not a trusted proxy.
func (g *guard) client(r *http.Request) netip.Addr { return g.clientOf(r.RemoteAddr, r.Header) }

// clientOf is client for a request from a peer with headers h.
func (g *guard) clientOf(remote string, h http.Header) netip.Addr {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	from := peer.Addr().Unmap()
	for _, hop := range slices.Backward(strings.Split(strings.Join(h["X-Forwarded-For"], ","), ",")) {
		before, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !g.proxy(from) {
			break
		}
		from = before.Unmap()
	}
	return from
}

// proxy reports whether the address is that of a trusted proxy.
func (g *guard) proxy(a netip.Addr) bool {
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// onLoopback reports whether the request came in on a loopback address.
func onLoopback(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true // the stricter answer
	}
	at, err := netip.ParseAddrPort(a.String())
	return err != nil || at.Addr().Unmap().IsLoopback()
}

// hostAllowed reports whether clients may request a host. Names of this machine and of allowed_hosts are always
// allowed. On a listener beyond loopback without allowed_hosts, so is every address, and every name if all data needs
// a key. Without keys, a name may belong to an attacker whose DNS points to the bridge: for a browser, a page of that
// name has the bridge's origin, and its GETs carry no Origin.
func (g *guard) hostAllowed(host string, loopback bool) bool {
	if g.listed(host) || address.Local(address.Hostname(host)) {
		return true
	}
	if loopback || len(g.hosts) > 0 {
		return false
	}
	_, err := netip.ParseAddr(address.Hostname(host))
	return g.keyed || err == nil || host == "" // browsers always send a Host
}

// listed reports whether allowed_hosts has the host. An entry without a port allows any port.
func (g *guard) listed(host string) bool {
	host = strings.ToLower(host)
	return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, address.Hostname(host))
}

// originAllowed reports whether pages of an origin may call. An empty allowed_origins allows none. Origins in
// allowed_origins may, also those of browser extensions and applications, whose schemes are not http. On loopback,
// other pages of this machine may if there are no access rules. A page of the requested host may if that host is
// surely the bridge's: it is in allowed_hosts, a name of this machine, or an address, which no attacker's DNS can
// redirect.
func (g *guard) originAllowed(origin, host string, loopback bool) bool {
	if g.origins != nil && len(g.origins) == 0 {
		return false
	}
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.Host == "" {
		return false // also null
	}
	if slices.Contains(g.origins, address.OriginOf(u)) {
		return true
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if loopback && address.Local(u.Hostname()) && (!g.rules || u.Host == strings.ToLower(host)) {
		return true
	}
	_, err = netip.ParseAddr(u.Hostname())
	return u.Host == strings.ToLower(host) && (err == nil || g.listed(host))
}

// CheckHost reports whether the Host of a request is served here. Otherwise, CheckHost answers the request.
func (a *Access) CheckHost(w http.ResponseWriter, r *http.Request) bool {
	return a.guard.Load().checkHost(w, r)
}

// CheckOrigin reports whether a request comes from no web page, or from an allowed one. Otherwise, CheckOrigin
// answers the request. CheckOrigin answers preflights too.
func (a *Access) CheckOrigin(w http.ResponseWriter, r *http.Request) bool {
	return a.guard.Load().checkOrigin(w, r)
}

// RequestedHost returns the host that the client requested, through trusted proxies.
func (a *Access) RequestedHost(r *http.Request) string { return a.guard.Load().requestedHost(r) }

// Trusts reports whether a peer is a trusted proxy, whose X-Forwarded headers are used.
func (a *Access) Trusts(peer string) bool { return a.guard.Load().trusts(peer) }

// Proxy reports whether an address is that of a trusted proxy.
func (a *Access) Proxy(at netip.Addr) bool { return a.guard.Load().proxy(at) }

// Client returns the address that a request comes from, through trusted proxies.
func (a *Access) Client(r *http.Request) netip.Addr { return a.guard.Load().client(r) }

// ClientOf is Client for a request from a peer with headers h.
func (a *Access) ClientOf(remote string, h http.Header) netip.Addr {
	return a.guard.Load().clientOf(remote, h)
}

// Local reports whether a program on this machine made a request. Local reports false if operators may come from
// other machines, or if a proxy passed the request on, because the proxy may act for any client.
func (a *Access) Local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && onLoopback(r) && config.Loopback(a.c().OperatorsListen()) && !proxied(r.Header)
}

// proxied reports whether a request has the headers of a proxy.
func proxied(h http.Header) bool {
	names := []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}
	return slices.ContainsFunc(names, func(name string) bool { return h[name] != nil })
}
