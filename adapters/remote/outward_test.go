package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestRealm(t *testing.T) {
	for address, want := range map[string]realm{
		"93.184.215.14": public, "2606:4700::1": public, "10.1.2.3": private, "192.168.0.1": private, "172.31.0.1": private, "100.64.0.1": private, "fd12::1": private,
		"127.0.0.1": loopback, "127.9.9.9": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"169.254.169.254": link, "fe80::1": link, "0.0.0.0": link, "::": link, "100.100.100.200": link, "224.0.0.1": link, "fd00:ec2::254": link,
		"64:ff9b::a00:1": private, "64:ff9b::7f00:1": loopback, "2002:a9fe:a9fe::1": link, "::ffff:10.0.0.1": private,
	} {
		if got := realmOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("realmOf(%s) = %d, want %d", address, got, want)
		}
	}
}

// get makes a request, and returns the body of the response.
func get(t *testing.T, way http.RoundTripper, at string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := way.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// I-214, N-62: what a server names is not in another network than the server, whatever its
// name stands for when it is connected to.
func TestOutward(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	for _, tc := range []struct {
		name, home string
		inside     bool
		trusted    []string
		at         string
		ok         bool
	}{
		{"from outside", "https://93.184.215.14/mcp", false, nil, s.URL, false},
		{"from outside, by name", "https://93.184.215.14/mcp", false, nil, byName, false},
		{"private networks are not this machine", "https://93.184.215.14/mcp", true, nil, s.URL, false},
		{"from a private network", "https://10.0.0.1/mcp", false, nil, s.URL, false},
		{"from this machine", "http://127.0.0.1:1/mcp", false, nil, s.URL, true},
		{"named by the operator", "https://93.184.215.14/mcp", false, []string{s.URL}, s.URL, true},
		{"named in capitals", "https://93.184.215.14/mcp", false, []string{strings.Replace(byName, "localhost", "LocalHost", 1)}, byName, true},
		{"another was named", "https://93.184.215.14/mcp", false, []string{s.URL}, byName, false},
	} {
		way, err := Outward(Config{URL: tc.home, Proxy: "none"}, tc.inside, tc.trusted...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = get(t, way, tc.at)
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want reached: %t", tc.name, err, tc.ok)
		}
	}
}

// A server that has a public address too is in no other network: its name may say anything.
func TestOutwardAddresses(t *testing.T) {
	for addresses, ok := range map[string]bool{
		"10.0.0.1": true, "127.0.0.1": true, "10.0.0.1 10.0.0.2": true, "10.0.0.1 93.184.215.14": false, "93.184.215.14 127.0.0.1": false, "93.184.215.14": false, "": false,
	} {
		o := &outward{home: "tools.example.com", look: func(context.Context, string, string) (all []netip.Addr, err error) {
			for _, a := range strings.Fields(addresses) {
				all = append(all, netip.MustParseAddr(a))
			}
			return all, nil
		}}
		if o.may(t.Context(), "idp.example.com", netip.MustParseAddr("10.0.0.9")) != ok {
			t.Errorf("a server at %s may name 10.0.0.9: %t, want %t", addresses, !ok, ok)
		}
	}
}

// Only the host of the server, and those that the operator has named, are shown the
// certificate of the client.
func TestOutwardCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, len(r.TLS.PeerCertificates)) }))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	own := &tls.Config{Certificates: s.TLS.Certificates, InsecureSkipVerify: true}
	for _, tc := range []struct {
		name    string
		trusted []string
		at      string
		want    string
	}{
		{"its own host", nil, byName, "1"},
		{"its own host in capitals", nil, strings.Replace(byName, "localhost", "LOCALHOST", 1), "1"},
		{"a host that it has named", nil, s.URL, "0"},
		{"a host of the operator", []string{s.URL}, s.URL, "1"},
	} {
		way, err := Outward(Config{URL: "https://localhost:1/mcp", Proxy: "none", TLS: own}, false, tc.trusted...)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := get(t, way, tc.at); err != nil || body != tc.want {
			t.Errorf("%s: it was shown %s certificates, want %s: %v", tc.name, body, tc.want, err)
		}
	}
}

// The usual port of a SOCKS proxy is 1080: the proxy may be anywhere.
func TestOutwardSocks(t *testing.T) {
	way, err := Outward(Config{URL: "http://93.184.215.14/mcp", Proxy: "socks5://127.0.0.1"}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = get(t, way, "http://idp.example.com/")
	if errors.Is(err, ErrRefused) {
		t.Errorf("the proxy is refused: %v", err)
	}
}

// Names are a proxy's to look up, but an address is one.
func TestOutwardProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Host) }))
	t.Cleanup(proxy.Close)
	way, err := Outward(Config{URL: "http://93.184.215.14/mcp", Proxy: proxy.URL}, false)
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := range map[string]bool{"http://idp.example.com/": true, "http://169.254.169.254/": false, "http://127.0.0.1:1/": false} {
		_, err = get(t, way, at)
		if (err == nil) != ok {
			t.Errorf("%s: %v, want reached: %t", at, err, ok)
		}
	}
}

// tokens is an Authorizer that has some, one after the other.
type tokens struct {
	all  []string
	fail error
}

func (t *tokens) Token(context.Context) (string, error) {
	if len(t.all) == 0 {
		return "", t.fail
	}
	return t.all[0], nil
}

func (t *tokens) Refused(_ context.Context, _ string, _ http.Header, _, _ int) (bool, error) {
	t.all = t.all[1:]
	return len(t.all) > 0 || t.fail != nil, nil
}

// A request that was refused goes out again, whole, as often as there is another token.
func TestAuthorizer(t *testing.T) {
	var got []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Header.Get("Authorization")+" "+string(body))
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	none := errors.New("no token")
	for _, tc := range []struct {
		name   string
		a      tokens
		header http.Header
		status int
		err    error
		want   string
	}{
		{"good", tokens{[]string{"good"}, nil}, nil, 200, nil, "Bearer good body"},
		{"second", tokens{[]string{"bad", "good"}, nil}, nil, 200, nil, "Bearer bad body|Bearer good body"},
		{"none at first", tokens{[]string{"", "good"}, nil}, nil, 200, nil, " body|Bearer good body"},
		{"bad", tokens{[]string{"bad", "worse"}, nil}, nil, 401, nil, "Bearer bad body|Bearer worse body"},
		{"none", tokens{nil, none}, nil, 0, none, ""},
		{"none any more", tokens{[]string{"bad"}, none}, nil, 0, none, "Bearer bad body"},
		{"of the client", tokens{[]string{"good"}, nil}, http.Header{"Authorization": {"Bearer own"}}, 401, nil, "Bearer own body"},
	} {
		for _, stream := range []bool{false, true} {
			got = nil
			a := tc.a
			c := client(t, Config{URL: s.URL, Auth: &a})
			do := c.Do
			if stream {
				do = c.Stream
			}
			res, err := do(c.Request(t.Context(), http.MethodPost, c.URL(), tc.header, []byte("body")))
			if !errors.Is(err, tc.err) || err == nil && res.StatusCode != tc.status {
				t.Errorf("%s: %v, %v", tc.name, res, err)
			}
			if err == nil {
				_ = res.Body.Close()
			}
			if all := strings.Join(got, "|"); all != tc.want {
				t.Errorf("%s: the server got %q, want %q", tc.name, all, tc.want)
			}
		}
	}
}

// N-80: what strangers name is on no machine of our own, neither by its address nor by a
// name.
func TestStrangers(t *testing.T) {
	asked := false
	at := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer at.Close()
	transport, err := Strangers()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(at.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "169.254.169.254", "[fd00::1]", "100.64.0.1"} {
		a, err := (&http.Client{Transport: transport}).Get("http://" + host + ":" + port)
		if err == nil {
			a.Body.Close()
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked {
		t.Error("something was asked for")
	}
}

// A proxy is not asked for names of strangers that are of a private network.
func TestStrangersProxy(t *testing.T) {
	asked := false
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer proxy.Close()
	way, err := Outward(Config{Proxy: proxy.URL}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = get(t, way, "http://localhost:1/")
	if !errors.Is(err, ErrRefused) || asked {
		t.Errorf("localhost: %v, the proxy was asked: %t", err, asked)
	}
	known := map[string]string{"public.example.com": "93.184.215.14", "wiki.corp.example": "10.1.2.3", "both.example.com": "93.184.215.14 10.1.2.3", "cloud.example.com": "fd00::1"}
	look := func(_ context.Context, _, host string) (all []netip.Addr, err error) {
		if host == "away.example.com" {
			return nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
		}
		for _, a := range strings.Fields(known[host]) {
			all = append(all, netip.MustParseAddr(a))
		}
		if all == nil {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
		return all, nil
	}
	for host, ok := range map[string]bool{
		"public.example.com": true, "unknown.example.com": true, "93.184.215.14": true, // the proxy may know names that are not known here
		"wiki.corp.example": false, "both.example.com": false, "cloud.example.com": false, "away.example.com": false, "10.1.2.3": false,
		"127.1": false, "10.1.": false, "2130706433": false, "0x7f.1": false, "0X7F000001": false, "0177.0.0.01": false, "\uff11\uff12\uff17.0.0.1": false, "a\u202eb.example": false,
		"7.example.com": true, "0x7f.example.com": true, "b\u00fccher.example.com": true,
	} {
		if err := (&outward{look: look}).named(t.Context(), host); (err == nil) != ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want it to be asked for: %t", host, err, ok)
		}
	}
	if err := (&outward{look: look, home: "mcp.example.com"}).named(t.Context(), "both.example.com"); err != nil {
		t.Errorf("a server of the operator's names it: %v", err)
	}
	if err := (&outward{look: look, home: "mcp.example.com"}).named(t.Context(), "127.1"); !errors.Is(err, ErrRefused) {
		t.Errorf("a server of the operator's names a number: %v", err)
	}
	if err := (&outward{look: look, home: "127.1"}).named(t.Context(), "127.1"); err != nil {
		t.Errorf("the operator names a number: %v", err)
	}
}

// A name that only a private network can know is asked of no proxy, although nothing is known
// of it here: the proxy may be in that network.
func TestPrivateNames(t *testing.T) {
	public := map[string]bool{
		"app.example.com": true, "example.com.": true, "APP.EXAMPLE.CO.UK": true, "me.github.io": true, "github.io": true, "xn--bcher-kva.example.com": true, "app.xn--p1ai": true,
		"wiki": false, "localhost": false, "com": false, "metadata.google.internal": false, "metadata.google.internal.": false, "Wiki.CORP": false, "printer.local": false, "router.lan": false,
		"nas.home.arpa": false, "1.0.0.10.in-addr.arpa": false, "api.default.svc": false, "api.default.svc.cluster.local": false, "app.localhost": false, "": false, ".": false,
		"b\u00fccher.intern": false, "\uff57\uff49\uff4b\uff49": false, // fullwidth letters are letters
	}
	unknown := func(context.Context, string, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	for home, free := range map[string]bool{"": false, "mcp.example.com": false, "93.184.215.14": false, "mcp.corp": true, "mcp": true, "10.1.2.3": true} {
		for host, ok := range public {
			if home != "" && host == "" {
				continue // no request has it
			}
			err := (&outward{home: home, look: unknown}).named(t.Context(), host)
			if ok = ok || free; (err == nil) != ok || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("%q, named by %q: %v, want it to be asked for: %t", host, home, err, ok)
			}
		}
	}
	for _, o := range []*outward{{home: "mcp.example.com", inside: true}, {home: "mcp.example.com", trusted: map[string]bool{"idp.corp": true}}, {trusted: map[string]bool{"idp.corp": true}}, {home: "idp.corp"}} {
		if err := o.named(t.Context(), "IdP.corp"); err != nil {
			t.Errorf("the operator allows it (%+v): %v", o, err)
		}
	}
}
