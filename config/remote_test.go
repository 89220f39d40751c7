package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
)

// The rules of the file also hold for remote servers, filters and forwards of a program.
func TestValidateRemote(t *testing.T) {
	text := "x"
	far := DefaultServer("remote", "")
	far.HTTP = &remote.Config{URL: "https://example.com/mcp?key=top-secret", Headers: map[string]string{"Authorization": "top-secret"}}
	far.Forward = []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}, {From: "X-Token", To: "Authorization"}}
	far.Tools = filter.Rules{
		Allow: []string{"*"}, Rename: map[string]string{"a": "b"},
		Override: map[string]filter.Override{"c": {Title: &text, Annotations: map[string]json.RawMessage{"d": []byte("null")}}},
	}
	far.Ping = time.Second
	child := DefaultServer("child", "")
	child.Stdio = &stdio.Config{Command: "x"}
	child.Forward = []bridge.Forward{{From: "X-Token", To: "GITHUB_TOKEN"}}
	good := Default()
	good.Servers = []Server{far, child}
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() = %v", err)
	}

	bad := Default()
	bad.Separator = "a b"
	far.HTTP = &remote.Config{
		URL: "top-secret", Transport: "top-secret",
		Headers: map[string]string{"X-A": "top-secret", "x-a": "top-secret", "Host": "top-secret"},
	}
	far.Forward = []bridge.Forward{{From: "Authorization", To: "X-A"}, {From: "X-B"}, {From: "X-C", To: "Mcp-Method"}}
	far.Ping = time.Millisecond
	far.Prompts = filter.Rules{Deny: []string{"", "gone"}, Rename: map[string]string{"gone": "x", "a": "y", "b": "y"}}
	far.Prefix = "same"
	child.Forward = []bridge.Forward{{From: "X-B", To: "LD_PRELOAD"}, {From: "X-B", To: "X_B"}, {From: "X-C", To: "X_B"}}
	child.Share, child.Prefix = ShareAll, "same"
	old := DefaultServer("old", "")
	old.SSE = &remote.Config{URL: "http://localhost/sse", Transport: "streamable"}
	old.Prefix = strings.Repeat("x", maxPrefix+1)
	bad.Servers = []Server{far, child, old}
	lines := refused(t, &bad,
		`separator is "a b": must be 1 to 8`,
		`server "remote": http: url must be the address`,
		`server "remote": http: transport must be`,
		`server "remote": http: headers: Host is set by the bridge`,
		`server "remote": http: headers: x-a is there twice`,
		`server "remote": forward is "Authorization as X-A": this header is for the bridge`,
		`server "remote": forward: item 2 has an invalid name of a header`,
		`server "remote": forward: item 3 becomes a header that the bridge sets itself`,
		`server "remote": prompts: deny: item 1 is empty`,
		`server "remote": prompts: rename: gone has no effect`,
		`server "remote": prompts: rename: b becomes the same as "a"`,
		`server "remote": ping is 1ms: must be at least 1s`,
		`server "child": forward cannot be used with share: all`,
		`server "child": forward: item 1 becomes a variable by which`,
		`server "child": forward: item 3 has the same name for the server as another`,
		`server "child": prefix is that of server "remote" too`,
		`server "old": sse: transport must be sse`,
		`server "old": prefix must not be longer than 40`,
	)
	if len(lines) != 18 {
		t.Errorf("Validate() has %d lines, want 18: %q", len(lines), lines)
	}
	if strings.Contains(strings.Join(lines, "\n"), "top-secret") {
		t.Errorf("Validate() = %q: shows a secret", lines)
	}
}

// A secret for an unencrypted address is a warning, except on this machine.
func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		name, url, header, forward string
		want                       bool
	}{
		{"secret", "http://example.com/mcp", "Authorization", "", true},
		{"key", "HTTP://192.0.2.1:8080/mcp", "X-API-Key", "", true},
		{"secret of clients", "http://example.com/mcp", "X-Region", "Authorization", true},
		{"no secret", "http://example.com/mcp", "X-Region", "X-Tenant", false},
		{"encrypted", "https://example.com/mcp", "Authorization", "", false},
		{"this machine", "http://localhost:3000/mcp", "Authorization", "", false},
		{"this machine by a name below", "http://mcp.LocalHost./mcp", "Authorization", "", false},
		{"this machine by address", "http://127.8.8.8/mcp", "Authorization", "", false},
		{"this machine by IPv6", "http://[::1]:3000/mcp", "Authorization", "", false},
		{"a client without its own credential", "https://example.com/mcp", "authorization", "Authorization", true},
		{"any address", "http://0.0.0.0/mcp", "Authorization", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range []string{"http", "sse"} {
				s := DefaultServer("a", "")
				c := &remote.Config{URL: test.url, Headers: map[string]string{test.header: "top-secret"}}
				if kind == "sse" {
					s.SSE = c
				} else {
					s.HTTP = c
				}
				if test.forward != "" {
					s.Forward = []bridge.Forward{{From: "X-Own", To: test.forward}}
				}
				got := s.Warnings()
				if len(got) > 0 != test.want || test.want && !strings.HasPrefix(got[0], kind+": url is not encrypted") && !strings.HasPrefix(got[0], "forward sets the header Authorization, and so does headers") {
					t.Errorf("Warnings() = %q, want one: %t", got, test.want)
				}
			}
		})
	}
}

// A container without -i gets no standard input, and ends at once.
func TestClosedContainer(t *testing.T) {
	for _, test := range []struct {
		command string
		want    bool
	}{
		{"docker run --rm mcp/fetch", true},
		{"/usr/bin/docker container run mcp/fetch", true},
		{"podman run -d --env=x -e API mcp/fetch", true},
		{"docker run -i --rm mcp/fetch", false},
		{"docker run --rm -ti mcp/fetch", false},
		{"docker run --interactive mcp/fetch", false},
		{"docker exec -i x mcp", false},
		{"docker compose run fetch", false},
		{"docker mcp gateway run", false},
		{"docker", false},
		{"npx -y run", false},
	} {
		words := strings.Fields(test.command)
		s := DefaultServer("a", "")
		s.Stdio = &stdio.Config{Command: words[0], Args: words[1:]}
		if got := s.Warnings(); len(got) > 0 != test.want || test.want && !strings.HasPrefix(got[0], "stdio: args run a container without -i") {
			t.Errorf("%s: warnings %q, want one: %t", test.command, got, test.want)
		}
	}
}

func TestEndsInSSE(t *testing.T) {
	for _, test := range []struct {
		url  string
		want bool
	}{
		{"https://example.com/sse", true}, {"https://example.com/a/sse/", true}, {"https://example.com/sse?key=/mcp", true},
		{"https://example.com/mcp?x=/sse", false}, {"https://example.com/asse", false}, {"https://sse", false}, {"https://example.com/SSE", false},
		{"", false}, {":", false},
	} {
		if got := EndsInSSE(test.url); got != test.want {
			t.Errorf("EndsInSSE(%q) = %t, want %t", test.url, got, test.want)
		}
	}
}
