package remote

import (
	"errors"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

// NoToken returns the error of a request that was not sent because there is no token
// for the server of that name, or nil if err is something else.
func NoToken(server conn.Name, err error) *bridge.Error {
	f, ok := errors.AsType[*oauth.Failure](err)
	switch {
	case !ok:
		return nil
	case f.SignIn:
		return server.Error(bridge.ErrSignIn, f.Public, f.Err)
	}
	return server.Error(bridge.ErrCredentials, f.Public, f.Err)
}
