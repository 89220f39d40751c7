package server

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/mcp-bridge/bridge/config"
)

// listenForOperators opens the address of console_listen, if it is set. The bridge serves everything
// there: the console is a client of the bridge, and browsers restrict the console's requests to its own
// origin.
func (s *server) listenForOperators(ctx context.Context) (err error) {
	at := s.Config().ConsoleListen
	if at == "" || s.operators != nil {
		return nil
	}
	var lc net.ListenConfig
	if s.operators, err = lc.Listen(ctx, "tcp", config.Address(at)); err != nil {
		return cannotListen(at, err, "console_listen:, or port 0 for any free one")
	}
	return nil
}

func (s *server) ConsoleAddr() net.Addr {
	if s.operators == nil {
		return nil
	}
	return s.operators.Addr()
}

// atOperators is the context key of requests that came in at console_listen.
type atOperators struct{}

// base returns the context of the requests to a listener. The context marks requests to console_listen.
func (s *server) base(l net.Listener) context.Context {
	if s.operators != nil && l.Addr() == s.operators.Addr() {
		return context.WithValue(context.Background(), atOperators{}, true)
	}
	return context.Background()
}

// forOperators reports whether a request came in at an address for operators.
func (s *server) forOperators(r *http.Request) bool {
	return s.Config().ConsoleListen == "" || r.Context().Value(atOperators{}) != nil
}

// ended waits until all listeners have ended. err is the error of the first listener. If a listener had an error
// other than http.ErrServerClosed, ended returns that error.
func (s *server) ended(err error, others <-chan error) error {
	if s.operators != nil {
		if other := <-others; errors.Is(err, http.ErrServerClosed) {
			err = other
		}
	}
	return err
}
