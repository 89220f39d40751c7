package gateway

import (
	"github.com/mcp-bridge/bridge/bridge"
)

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
			if one.filter.Serves(principal) {
				return nil
			}
		}
		return &bridge.Error{Kind: bridge.ErrDenied, Public: "this caller may use no server"}
	}
	if !r.filter.Serves(principal) {
		return &bridge.Error{Server: r.o.Name, Kind: bridge.ErrDenied, Public: "this caller may not use it"}
	}
	return nil
}
