package sign

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"
)

// Child processes of a program end with it.
func TestCommandChildren(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := Hook{Command: []string{os.Args[0]}, Env: map[string]string{"HOOK": "parent", "HOOK_TEST_ADDRESS": l.Addr().String()}, Timeout: time.Hour}.Signer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	signed := make(chan error, 1)
	go func() {
		u, _ := url.Parse("https://api.example.com")
		signed <- s.Sign(ctx, &http.Request{URL: u, Header: http.Header{}}, nil)
		l.Close() // a program that has ended starts no child
	}()
	child, err := l.Accept()
	cancel()
	if err := <-signed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if _, err := child.Read(make([]byte, 1)); err == nil { // it ends when the child does, which says nothing
		t.Error("the program's child says something")
	}
}
