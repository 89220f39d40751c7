package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/mcp-bridge/bridge/config"
)

// listenForOperators opens the address of console_listen, if there is one. All that is
// served at the bridge's own address is served there too: the page for operators is a
// client of the bridge, and a browser lets it speak to where it is from.
func (s *Server) listenForOperators(ctx context.Context) (err error) {
	at := s.c().ConsoleListen
	if at == "" || s.operators != nil {
		return nil
	}
	var lc net.ListenConfig
	if s.operators, err = lc.Listen(ctx, "tcp", config.Address(at)); err != nil {
		return fmt.Errorf("listen on %s: %w (choose another address with console_listen:, port 0 picks a free one)", at, err)
	}
	return nil
}

// ConsoleAddr returns where operators are served, if that is an address of its own and
// Listen or Serve has opened it; nil otherwise.
func (s *Server) ConsoleAddr() net.Addr {
	if s.operators == nil {
		return nil
	}
	return s.operators.Addr()
}

// atOperators is in the context of requests that came to the address of console_listen.
type atOperators struct{}

// base returns the context of the requests to a listener.
func (s *Server) base(l net.Listener) context.Context {
	if s.operators != nil && l.Addr() == s.operators.Addr() {
		return context.WithValue(context.Background(), atOperators{}, true)
	}
	return context.Background()
}

// forOperators reports whether a request came to where operators are served.
func (s *Server) forOperators(r *http.Request) bool {
	return s.c().ConsoleListen == "" || r.Context().Value(atOperators{}) != nil
}

// ended waits until all listeners have ended, of which the first did with err, and returns
// why one did.
func (s *Server) ended(err error, others <-chan error) error {
	if s.operators != nil {
		if other := <-others; errors.Is(err, http.ErrServerClosed) {
			err = other
		}
	}
	return err
}
