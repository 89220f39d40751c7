package remote

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestLinkLocal(t *testing.T) {
	for address, want := range map[string]bool{
		"169.254.169.254": true, "169.254.0.1": true, "fe80::1": true, "fe80::1%eth0": true, "febf::1": true, "fd00:ec2::254": true,
		"::ffff:169.254.169.254": true, "::169.254.169.254": true, "64:ff9b::169.254.169.254": true, "64:ff9b:1::a9fe:a9fe": true,
		"64:ff9b:1:a9fe:a9:fe00::": true, "2002:a9fe:a9fe::1": true, "::ffff:0:169.254.169.254": true,
		"100.100.100.200": true, "168.63.129.16": true, "fd20:ce::254": true, "64:ff9b::100.100.100.200": true,
		"127.0.0.1": false, "10.0.0.1": false, "192.168.1.1": false, "169.253.1.1": false, "169.255.1.1": false, "8.8.8.8": false,
		"::1": false, "fd00::1": false, "fec0::1": false, "2001:db8::1": false, "64:ff9b::8.8.8.8": false, "::ffff:10.0.0.1": false,
	} {
		if got := LinkLocal(netip.MustParseAddr(address)); got != want {
			t.Errorf("LinkLocal(%s) = %v, want %v", address, got, want)
		}
	}
}

// What a name stands for is looked at when it is dialled, by both clients.
func TestRefuses(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "server") })
	named := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	for _, address := range []string{s.URL, named} {
		c := client(t, Config{URL: address, Proxy: "none", Refuses: func(a netip.Addr) bool { return a.IsLoopback() }})
		for name, do := range map[string]func(*http.Request) (*http.Response, error){"Do": c.Do, "Stream": c.Stream} {
			if _, err := do(c.Request(t.Context(), "GET", c.URL(), nil, nil)); !errors.Is(err, ErrRefused) {
				t.Errorf("%s %s: %v", name, address, err)
			}
		}
		c = client(t, Config{URL: address, Proxy: "none", Refuses: LinkLocal})
		if got, err := ask(t, c, "GET", nil, nil); got != "server" || err != nil {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
}

// Addresses that strangers have named are dialled only on the internet. A proxy may be
// anywhere, and is asked for no others.
func TestOutside(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	get := func(proxy, host string) error {
		c := client(t, Config{URL: "http://" + host + ":" + port, Proxy: proxy, Outside: true})
		res, err := c.Do(c.Request(t.Context(), "GET", c.URL(), nil, nil))
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "10.0.0.1", "[fd00::1]", "169.254.169.254"} {
		if err := get("none", host); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", host, err)
		}
		if err := get(s.URL, host); !errors.Is(err, ErrRefused) {
			t.Errorf("%s behind a proxy: %v, want ErrRefused", host, err)
		}
	}
	if asked > 0 {
		t.Errorf("%d requests were made", asked)
	}
	if err := get(s.URL, "api.example.com"); err != nil || asked != 1 {
		t.Errorf("a proxy on this machine: %v, %d requests", err, asked)
	}
}

// Whence distinguishes the internet from this machine, behind a proxy by the name.
func TestWhence(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	for _, test := range []struct {
		url, proxy string
		public     bool
	}{{s.URL, "none", false}, {"http://api.example.com", s.URL, true}, {"http://wiki", s.URL, false}, {"http://10.0.0.1", s.URL, false}} {
		c := client(t, Config{URL: test.url, Proxy: test.proxy})
		ctx, public := c.FromInternet(t.Context(), c.URL())
		res, err := c.Do(c.Request(ctx, "GET", c.URL(), nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if public() != test.public {
			t.Errorf("%s by %s: public is %t", test.url, test.proxy, !test.public)
		}
	}
}
