package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// texts are the forms of texts that the tags of settings name.
var texts = setting.Texts{
	"listen":     normalListen,
	"base_path":  address.BasePath,
	"public_url": func(s string) (string, error) { return s, checkPublicURL(s) },
	"origin":     address.Origin,
	"host":       address.Host,
	"header":     checkHeader,
	"variable":   checkVariable,
	"revision":   checkRevision,
	"separator":  plain(8, "must be 1 to 8 letters, digits, '_', '.' and '-': it becomes a part of the names of tools"),
	"key_prefix": plain(64, "must be 1 to 64 letters, digits, '_', '.' and '-'"),
	"prefix":     plain(1000, "must consist of letters, digits, '_', '.' and '-': it becomes a part of the names of tools"),
}

// normalListen returns the address for an address or a port.
func normalListen(s string) (string, error) {
	at := Address(s)
	return at, address.CheckListen(at)
}

func checkRevision(s string) (string, error) {
	if !slices.Contains(era.Supported(), s) {
		return "", errors.New("must be one of " + strings.Join(era.Supported(), ", "))
	}
	return s, nil
}

// plain returns a form: at most most characters that every client accepts in names. rule is the error.
func plain(most int, rule string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !isPlain(s, most) {
			return "", errors.New(rule)
		}
		return s, nil
	}
}

// checkVariable checks the name of a variable. The error shows nothing after '=', which may be a secret.
func checkVariable(name string) (string, error) {
	switch before, _, value := strings.Cut(name, "="); {
	case value:
		return "", fmt.Errorf("%q is followed by '=': write NAME: value", strict.Clip(before))
	case name == "" || strings.Contains(name, "\x00"):
		return "", fmt.Errorf("%q is no name for a variable", strict.Clip(name))
	}
	return name, nil
}

// checkHeader checks the name of a header. The error does not show the name, which may be NAME=SECRET.
func checkHeader(name string) (string, error) {
	if !httpguts.ValidHeaderFieldName(name) {
		return "", errors.New("a key is not the name of a header: write NAME: value")
	}
	return name, nil
}

// Address returns the listen address that a text means. A port alone, such as 8808, means that port on this machine
// only; :8808 means every network. Other texts stay as they are.
func Address(listen string) string { return address.Listen(listen) }

// Loopback reports whether only this machine can reach a listen address. An empty host means every network, so the
// result is false.
func Loopback(listen string) bool { return address.Loopback(listen) }

func checkName(name string) error {
	if name == "" || len(name) > 64 || name[0] == '-' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return errors.New("a server's name has 1 to 64 lower-case letters, digits and '-', and begins with a letter or a digit")
	}
	if isReserved(name) {
		return errors.New("this name is reserved for URLs of the bridge: choose another one")
	}
	return nil
}

func isReserved(name string) bool {
	return slices.Contains([]string{"mcp", "sse", "messages", "hooks", "ui", "healthz", "readyz", "metrics"}, name)
}

// NameOf turns a text into the name of a server: "My Server" becomes my-server. If the text has neither letters nor
// digits, the result is not a valid name.
func NameOf(key string) string {
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, key), "-")
	if isReserved(name) {
		name += "-server"
	}
	return name
}

func checkPublicURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return nil
	case err != nil || !address.IsHost(u.Host) || s != u.Scheme+"://"+u.Host:
		return errors.New("expected https://HOST or https://HOST:PORT, such as https://mcp.example.com, without a path: the bridge adds base_path")
	case s != strings.ToLower(s):
		return errors.New("must be in lower case, as clients compare it")
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return fmt.Errorf("must not have :%s: browsers and clients leave out the default port", u.Port())
	}
	return jwks.CheckAddress(s)
}

// isPlain reports whether s has at most most bytes, and only characters that every client accepts in the name of a
// tool.
func isPlain(s string, most int) bool { return len(s) <= most && address.IsPlain(s) }

func isPattern(name string) bool { return strings.ContainsAny(name, "*?") }
