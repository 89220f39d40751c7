package flags

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/similar"
)

var flagOf = map[string]string{
	"share": "share", "era": "era", "offer": "offer", "transport": "transport", "timeout": "timeout", "handshake_timeout": "handshake-timeout",
	"allowed_origins": "allow-origin", "allowed_hosts": "allow-host", "mode": "mode",
}

// These patterns match the faults of a configuration: faults of a key, of a name, and of a value that must be one of
// several.
var (
	ofKey  = regexp.MustCompile(`^(?:server "(?:[^"\\]|\\.)*": )?(?:http: |rest: )?([a-z_]+) ((?:is|has|must be) .*)$`)
	ofName = regexp.MustCompile(`^server ("(?:[^"\\]|\\.)*"): (a server's name .*|this name is .*)$`)
	choice = regexp.MustCompile(`^is ("(?:[^"\\]|\\.)*"): must be ([\w, ]+)$`)
)

// Named replaces keys by flags in the faults of a configuration that comes from flags. given is Listen.Given. If err is
// nil, Named returns nil.
func Named(err error, given string) error {
	if err == nil {
		return nil
	}
	var all []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if m := ofName.FindStringSubmatch(line); m != nil {
			text := fmt.Sprintf("--name is %s: %s", m[1], m[2])
			if name, err := strconv.Unquote(m[1]); err == nil && config.NameOf(name) != name {
				text += fmt.Sprintf(": write %q", config.NameOf(name))
			}
			all = append(all, errors.New(text))
			continue
		}
		line = strings.Replace(line, "): add base_url: URL", "): pass --base-url URL", 1)
		m := ofKey.FindStringSubmatch(line)
		switch {
		case m != nil && m[1] == "listen" && given != "":
			line = given + ": the address " + m[2]
		case m != nil && m[1] == "url":
			line = "the URL " + m[2]
		case m != nil && flagOf[m[1]] != "":
			line = "--" + flagOf[m[1]] + " " + m[2]
			if c := choice.FindStringSubmatch(m[2]); c != nil {
				value, _ := strconv.Unquote(c[1])
				if near := similar.Names(value, strings.FieldsFunc(strings.ReplaceAll(c[2], " or ", ","), func(r rune) bool { return r == ',' || r == ' ' })); len(near) > 0 {
					line += fmt.Sprintf(": did you mean %s?", strings.Join(near, " or "))
				}
			}
		}
		all = append(all, errors.New(line))
	}
	return errors.Join(all...)
}
