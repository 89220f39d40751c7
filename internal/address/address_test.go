package address

import (
	"net/url"
	"testing"
)

func TestListen(t *testing.T) {
	for _, c := range []struct {
		text, want string
		loopback   bool
	}{
		{"8808", "127.0.0.1:8808", true}, {":8808", ":8808", false}, {"localhost:1", "localhost:1", true}, {"[::1]:1", "[::1]:1", true},
		{"0.0.0.0:1", "0.0.0.0:1", false}, {"10.0.0.1:1", "10.0.0.1:1", false}, {"here", "here", false},
	} {
		if got := Listen(c.text); got != c.want || Loopback(c.text) != c.loopback {
			t.Errorf("%q: %q, on loopback %v", c.text, got, Loopback(c.text))
		}
	}
	for _, text := range []string{"here", "a b:1", ":70000", "1.2.3.4"} {
		if CheckListen(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true}, {":1", "127.0.0.1:1", true}, {"[::]:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.2:1", false}, {":0", ":0", false}, {":1", ":2", false},
	} {
		if got := Overlap(c.a, c.b); got != c.want {
			t.Errorf("%s and %s overlap: %v", c.a, c.b, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"localhost": true, "a.localhost": true, "127.0.0.9": true, "::1": true, "localhost.example.com": false, "10.0.0.1": false} {
		if Local(name) != want {
			t.Errorf("%q is this machine: %v", name, !want)
		}
	}
	for host, want := range map[string]bool{"a-b.example_c.com": true, "[::1]:80": true, "a:0": false, "ä.example.com": false, "": false, "a b": false, "[1.2.3.4]": false} {
		if IsHost(host) != want {
			t.Errorf("%q is a host: %v", host, !want)
		}
	}
	for origin, want := range map[string]string{"HTTPS://A.example.com:443": "https://a.example.com", "http://a:80": "http://a", "http://a:8080": "http://a:8080", "http://a/": "", "*": "", "null": ""} {
		if got, err := Origin(origin); got != want || (err == nil) != (want != "") {
			t.Errorf("the origin %q: %q, %v", origin, got, err)
		}
	}
	if got := OriginOf(&url.URL{Scheme: "ftp", Host: "a:80"}); got != "ftp://a:80" {
		t.Error(got)
	}
	for path, want := range map[string]string{"/": "", "/a/b/": "/a/b"} {
		if got, err := BasePath(path); got != want || err != nil {
			t.Errorf("the path %q: %q, %v", path, got, err)
		}
	}
}
