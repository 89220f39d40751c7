package gateway

import (
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// right is what one principal may use of a server.
type right struct {
	sieves *sieves         // of the tools, by the names that clients see; nil when all may be used
	guests bridge.Upstream // what calls of its clients without sessions go to
}

// Covers reports whether the grant is for the server of that name.
func (g Grant) Covers(server string) bool {
	return len(g.Servers) == 0 || (&Filter{Allow: g.Servers}).Passes(server)
}

// Passes reports whether the grant lets a tool be used, by the name that clients
// see at the server itself.
func (g Grant) Passes(tool string) bool { return (&Filter{Allow: g.Allow, Deny: g.Deny}).Passes(tool) }

// grant returns what each principal may use of the server; nil when there are
// no rules. One that has no right is not in it. r.guests has what any client
// sees.
func (r *route) grant(all map[string]Grant) map[string]*right {
	if all == nil {
		return nil
	}
	rights := map[string]*right{}
	for principal, g := range all {
		if !g.Covers(r.o.Name) {
			continue
		}
		own := &right{}
		if len(g.Allow)+len(g.Deny) > 0 {
			own.sieves = &sieves{list.Tools: newSieve(Filter{Allow: g.Allow, Deny: g.Deny}, false)}
		}
		own.guests = r.reports.Wrap(own.of(r.guests))
		rights[principal] = own
	}
	return rights
}

// serves reports whether the principal may use the server at all. Otherwise it
// does not exist where several servers are offered as one.
func (r *route) serves(principal string) bool { return r.rights == nil || r.rights[principal] != nil }

// granted returns the part of up that the principal may use: up has what any
// client sees.
func (r *route) granted(principal string, up bridge.Upstream) bridge.Upstream {
	return r.rights[principal].of(up)
}

// of returns the part of up that may be used.
func (own *right) of(up bridge.Upstream) bridge.Upstream {
	if own == nil || own.sieves == nil {
		return up
	}
	return &filtered{up, own.sieves}
}

// passes reports whether what clients see by that name may be used.
func (own *right) passes(k list.Kind, seen string) bool {
	return own == nil || own.sieves == nil || own.sieves[k].passes(seen)
}

// reception returns what calls of the principal's clients without sessions go
// to.
func (r *route) reception(principal string) bridge.Upstream {
	if own := r.rights[principal]; own != nil {
		return own.guests
	}
	return r.guests
}

// Allowed says whether a principal may use the server of that name, which is as
// in Initialize. The error is ErrUnknownServer, or of the kind ErrDenied.
func (b *Gateway) Allowed(server, principal string) error {
	if err := b.revoked.barred(principal); err != nil {
		return err
	}
	r := b.route(server)
	switch {
	case server != "" && r == nil:
		return bridge.ErrUnknownServer
	case server == "" && len(b.routes) == 1:
		r = b.routes[0]
	case server == "":
		for _, one := range b.routes {
			if one.serves(principal) {
				return nil
			}
		}
		return &bridge.Error{Kind: bridge.ErrDenied, Public: "this caller may use no server"}
	}
	if !r.serves(principal) {
		return &bridge.Error{Server: r.o.Name, Kind: bridge.ErrDenied, Public: "this caller may not use it"}
	}
	return nil
}
