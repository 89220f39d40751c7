// Package redistest starts redis-server for tests.
package redistest

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/programtest"
)

// Server is a store that a test has to itself.
type Server struct {
	Address string
	t       testing.TB
	dir     string
	more    []string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
}

// Start starts a server with additional arguments. It stops when the test ends.
func Start(t testing.TB, more ...string) *Server {
	t.Helper()
	programtest.Need(t, "redis-server")
	s := &Server{
		Address: porttest.Address(t),
		t:       t,
		dir:     t.TempDir(),
		more:    more,
	}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// Run starts the server again, at the same address. It is empty, unless its arguments have --appendonly yes.
func (s *Server) Run() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Address)
	s.run(append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, s.more...)...)
}

// run starts the program, and waits until it answers.
func (s *Server) run(args ...string) {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	c := s.Client()
	defer c.Close()
	until(s.t, "redis-server answers", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("redis-server %v has ended", args)
		default:
		}
		return c.Ping(context.Background()).Err() == nil
	})
}

// Kill kills the server.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

// Client returns a client. The caller closes it. Only a request's context bounds the wait for an answer.
func (s *Server) Client() store.Client {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{s.Address},
		ContextTimeoutEnabled: true,
		MaxRetries:            1,
		DialTimeout:           time.Hour,
		ReadTimeout:           -1,
		WriteTimeout:          -1,
		PoolTimeout:           time.Hour,
	})
}
