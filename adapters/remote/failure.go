package remote

import (
	"errors"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

// Failure returns the error of a request that failed with err, without a usable response. If the
// server may have acted on the request, the error is ErrLost or a kind of ErrLost, and otherwise
// another.
func Failure(server conn.Name, err error) *bridge.Error {
	if none := noToken(server, err); none != nil {
		return none
	}
	if redirect, ok := errors.AsType[RedirectError](err); ok {
		return server.Unavailable(redirect.Error(), nil)
	}
	if Unsent(err) {
		return server.Unavailable("it cannot be reached", err)
	}
	return Broken(server, "the connection to it broke", err)
}

// Broken returns the error of a request whose response broke off with err. what is the description
// for clients. If err is a CodingError, its text replaces what.
func Broken(server conn.Name, what string, err error) *bridge.Error {
	if coding, ok := errors.AsType[CodingError](err); ok {
		return server.Invalid(coding.Error(), nil)
	}
	return server.Lost(what, err)
}

// noToken returns the error of a request that was not sent, since there is no token for the server. It
// returns nil if err has another reason.
func noToken(server conn.Name, err error) *bridge.Error {
	f, ok := errors.AsType[*oauth.Failure](err)
	switch {
	case !ok:
		return nil
	case f.SignIn:
		return server.Error(bridge.ErrSignIn, f.Public, f.Err)
	}
	return server.Error(bridge.ErrCredentials, f.Public, f.Err)
}
