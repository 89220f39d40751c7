package gateway

import (
	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/gateway/revoked"
)

// Revoke ends what a principal has, whose key was taken away: its sessions with
// their streams, and of its clients without sessions the calls under way, those
// that wait for their answers, and the subscriptions. Nothing of it begins any
// more until Restore. Other principals are not disturbed.
func (b *Gateway) Revoke(principal string) {
	calls := b.revoked.Revoke(principal)
	ended := b.open(func(s *Session) bool { return s.caller.Principal == principal })
	for _, s := range ended {
		s.End(revoked.Err)
	}
	for _, r := range b.table.Load().servers {
		r.pool.Revoke(principal, revoked.Err)
	}
	b.log.Info("what a caller had was ended: its key was taken away", "principal", principal, "sessions", len(ended), "calls", calls)
}

// Restore lets a principal in again that Revoke has put out.
func (b *Gateway) Restore(principal string) {
	b.revoked.Restore(principal)
}

// Allowed says whether a principal may use the server of that name, which is as
// in Initialize. The error is ErrUnknownServer, or of the kind ErrDenied.
func (b *Gateway) Allowed(server, principal string) error {
	return b.allowed(b.table.Load().at(server), server, principal)
}

// allowed is Allowed of what the table has at that name.
func (b *Gateway) allowed(s *server, name, principal string) error {
	if err := b.revoked.Check(principal); err != nil {
		return err
	}
	switch {
	case s != nil && s.filter.Serves(principal):
		return nil
	case s != nil:
		return &bridge.Error{Server: s.o.Name, Kind: bridge.ErrDenied, Public: "this caller may not use it"}
	case name != "":
		return bridge.ErrUnknownServer
	}
	for _, one := range b.table.Load().servers {
		if one.filter.Serves(principal) {
			return nil
		}
	}
	return &bridge.Error{Kind: bridge.ErrDenied, Public: "this caller may use no server"}
}
