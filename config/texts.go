package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/address"
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

func checkVariable(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "", fmt.Errorf("%q is no name for a variable: it must not be empty or contain '='", strict.Clip(name))
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
