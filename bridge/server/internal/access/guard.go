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

// guard refuses what a web page in a victim's browser could send: requests
// with a foreign Origin, and requests to a loopback listener under another
// name (DNS rebinding; ). It also answers preflights.
type guard struct {
	origins []string       // allowed beside the listener's own; an empty list, unlike nil, allows none
	hosts   []string       // allowed beside loopback names
	proxies []netip.Prefix // whose X-Forwarded headers count
	keyed   bool           // all that is worth reading takes a key, which no page of another site has
	rules   bool           // callers are known by keys: a page of this machine may be of any of its users

	log      *slog.Logger
	refusals *logs.Limiter // when there may be another line about what was refused
}

// newGuard returns the guard of a configuration. It is not changed: another takes its
// place.
func newGuard(c *config.Config, log *slog.Logger) *guard {
	return &guard{log: log, refusals: new(logs.Limiter), origins: c.AllowedOrigins, hosts: c.AllowedHosts, proxies: c.TrustedProxies, keyed: len(c.Access) > 0 && !c.PublicStatus, rules: len(c.Access) > 0}
}

// What browsers' scripts need of us.
const (
	corsMethods = "GET, POST, DELETE, OPTIONS"
	corsHeaders = "Content-Type, Accept, Authorization, X-API-Key, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-ID"
	corsExposed = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
	corsMaxAge  = "7200"
)

// nosniff has browsers believe the Content-Type.
var nosniff = []string{"nosniff"}

// named reports whether a request comes under a name that is served here; otherwise it
// has been answered.
func (g *guard) named(w http.ResponseWriter, r *http.Request) bool {
	w.Header()["X-Content-Type-Options"] = nosniff
	if r.URL.RawPath != "" { // a proxy's rules for paths would not see which server it is for
		answer.Refuse(w, http.StatusNotFound, "nothing is served here: write the path without %")
		return false
	}
	if host := g.asked(r); !g.hostAllowed(host, onLoopback(r)) {
		return g.deny(w, r, "host", host, "this Host is not served here: list it in allowed_hosts of the configuration file, or pass --allow-host to run")
	}
	return true
}

// asked returns the host that the client has asked for.
func (g *guard) asked(r *http.Request) string {
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" && g.trusts(r.RemoteAddr) {
		first, _, _ := strings.Cut(forwarded, ",")
		return strings.TrimSpace(first)
	}
	return r.Host
}

// fromOwn reports whether a request, which named has let on, is of no web page, or of one
// that may call; otherwise it has been answered, as preflights are.
func (g *guard) fromOwn(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		// A browser says so where it sends no Origin: for images, links, and fetches
		// whose answer the page may not read.
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !strings.HasSuffix(r.URL.Path, "/healthz") {
			page, _ := url.Parse(r.Header.Get("Referer")) // of which only the origin is for the log
			if page == nil {
				page = &url.URL{}
			}
			return g.deny(w, r, "origin", address.OriginOf(page), "pages of other sites may not call: list their origin in allowed_origins of the configuration file, or pass --allow-origin to run, and have them use CORS")
		}
		return true
	}
	if len(origins) > 1 || !g.originAllowed(origins[0], g.asked(r), onLoopback(r)) {
		return g.deny(w, r, "origin", strings.Join(origins, ", "), "this Origin may not call: list it in allowed_origins of the configuration file, or pass --allow-origin to run")
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", corsExposed)
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders+mirrors(r.Header["Access-Control-Request-Headers"]))
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// maxMirrors bounds the headers of one request that repeat arguments.
const maxMirrors = 64

// mirrors returns those of the headers that a script wants to send which repeat
// arguments of a tool, as what follows a list: which there are, the tools say
// (2026-07-28, B8).
func mirrors(wanted []string) string {
	list, n := "", 0
	for _, line := range wanted {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if n < maxMirrors && len(name) > len(era.HeaderParam) && strings.EqualFold(name[:len(era.HeaderParam)], era.HeaderParam) && httpguts.ValidHeaderFieldName(name) {
				list += ", " + name
				n++
			}
		}
	}
	return list
}

// deny refuses a request for the value of a header, and logs that, so that the
// operator learns why a page cannot call. It returns false.
func (g *guard) deny(w http.ResponseWriter, r *http.Request, header, value, why string) bool {
	if more, due := g.refusals.Due(ComplainEvery); due {
		g.log.Info("a request was refused", header, fmt.Sprintf("%.200s", value), "from", g.client(r).String(), "err", why, "more", more)
	}
	answer.Refuse(w, http.StatusForbidden, why)
	return false
}

// trusts reports whether the peer is a proxy whose X-Forwarded headers count.
func (g *guard) trusts(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	return g.proxy(at.Addr().Unmap())
}

// client returns the address that a request comes from: that of the peer, and where
// it is a trusted proxy, the last one in X-Forwarded-For that is not one too.
func (g *guard) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := peer.Addr().Unmap()
	for _, hop := range slices.Backward(strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")) {
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
		return true // the strict side
	}
	at, err := netip.ParseAddrPort(a.String())
	return err != nil || at.Addr().Unmap().IsLoopback()
}

// hostAllowed reports whether a request under that name is for us. Beyond loopback
// and without a list, addresses are. So are names if all takes a key; otherwise one
// may be an attacker's, whose DNS leads to us: a page of that name has our origin in
// the eyes of its visitor's browser, and its GETs have no Origin.
func (g *guard) hostAllowed(host string, loopback bool) bool {
	if g.listed(host) || address.Local(address.Hostname(host)) {
		return true
	}
	if loopback || len(g.hosts) > 0 {
		return false
	}
	_, err := netip.ParseAddr(address.Hostname(host))
	return g.keyed || err == nil || host == "" // browsers always send one
}

// listed reports whether allowed_hosts has the host. An entry without a port
// is meant for any port.
func (g *guard) listed(host string) bool {
	host = strings.ToLower(host)
	return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, address.Hostname(host))
}

// originAllowed reports whether pages of that origin may call. Other pages of this
// machine may where there are no access rules. A page of the same host may, if that
// name is surely ours: it is in allowed_hosts, a name of this machine, or an address,
// which no attacker's DNS can turn around.
func (g *guard) originAllowed(origin, host string, loopback bool) bool {
	if g.origins != nil && len(g.origins) == 0 {
		return false
	}
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false // also null
	}
	if slices.Contains(g.origins, address.OriginOf(u)) {
		return true
	}
	if loopback && address.Local(u.Hostname()) && (!g.rules || u.Host == strings.ToLower(host)) {
		return true
	}
	_, err = netip.ParseAddr(u.Hostname())
	return u.Host == strings.ToLower(host) && (err == nil || g.listed(host))
}

// Named reports whether a request comes under a name that is served here; otherwise it has
// been answered.
func (a *Access) Named(w http.ResponseWriter, r *http.Request) bool {
	return a.guard.Load().named(w, r)
}

// FromOwn reports whether a request, which Named has let on, is of no web page, or of one
// that may call; otherwise it has been answered, as preflights are.
func (a *Access) FromOwn(w http.ResponseWriter, r *http.Request) bool {
	return a.guard.Load().fromOwn(w, r)
}

// Asked returns the host that the client has asked for.
func (a *Access) Asked(r *http.Request) string { return a.guard.Load().asked(r) }

// Trusts reports whether a peer is a proxy whose X-Forwarded headers count.
func (a *Access) Trusts(peer string) bool { return a.guard.Load().trusts(peer) }

// Proxy reports whether an address is that of such a proxy.
func (a *Access) Proxy(at netip.Addr) bool { return a.guard.Load().proxy(at) }

// Client returns the address that a request comes from, as far as such proxies say it.
func (a *Access) Client(r *http.Request) netip.Addr { return a.guard.Load().client(r) }

// Near reports whether a request is of a program on this machine. A proxy on it may speak
// for anybody.
func (a *Access) Near(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && onLoopback(r) && config.Loopback(a.c().OperatorsListen()) && !proxied(r.Header)
}

// proxied reports whether a proxy says that a request came through it.
func proxied(h http.Header) bool {
	names := []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}
	return slices.ContainsFunc(names, func(name string) bool { return h[name] != nil })
}
