package config

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

var _ strict.Schema = (*decoder)(nil)

// Special implements strict.Schema.
func (d *decoder) Special(s *strict.Slot, n *yaml.Node, into any) (ok, known bool) {
	switch into := into.(type) {
	case *string:
		s.Loose = s.Loose || s.Field != nil && s.Field.Text == "listen" // a port alone is a number in YAML
	case *[]Server:
		return d.servers(s, n, into), true
	case *Words:
		return d.words(s, n, into), true
	case *filter.Rules:
		return d.filter(s, n, into), true
	case *filter.Override:
		return d.override(s, n, into), true
	case *Argument:
		return d.argumentChange(s, n, into), true
	case **stdio.Config:
		if strict.Kind(n) == strict.String {
			sec, ok := d.shortCommand(s, strict.Resolve(n).Value, into)
			if ok {
				d.CheckStruct(sec, *into)
				s.Section.Adopt(s.Label, sec)
			}
			return ok, true
		}
	case **remote.Config:
		if strict.Kind(n) == strict.String { // http: URL
			sec := &strict.Section{Where: s.Section.Where + s.Label + ": ", Line: s.Line}
			*into = &remote.Config{}
			d.Struct(sec, []strict.Entry{{
				Key:   "url",
				Line:  s.Line,
				Value: n,
			}}, *into)
			s.Section.Adopt(s.Label, sec)
			return true, true
		}
	}
	return d.restValue(s, n, into)
}

// restValue reads the values that only the kind rest has. For other values known is false.
func (d *decoder) restValue(s *strict.Slot, n *yaml.Node, v any) (ok, known bool) {
	switch into := v.(type) {
	case *string:
		if s.Label == "openapi" && strict.Kind(n) == strict.Map {
			return d.document(s, n, into), true
		}
	case *rest.Auth:
		return d.auth(s, n, into), true
	case *[]string: // in a match, a text stands for a list of one
		if strict.Kind(n) == strict.String && strings.HasSuffix(s.Section.Where, ": match: ") {
			got, ok := d.Scalar(s, n, reflect.TypeFor[string]())
			*into = []string{got.Value}
			return ok, true
		}
	case *[]rest.Rule:
		return d.restRules(s, n, into), true
	case *[]rest.Tool:
		return d.restTools(s, n, into), true
	case *[]rest.Arg:
		return d.restArgs(s, n, into), true
	case *failure:
		return d.failure(s, n, into), true
	}
	return false, false
}

// CheckStruct validates the settings v, and checks the files that they name.
func (d *decoder) CheckStruct(sec *strict.Section, v any) {
	if c, ok := v.(*rest.Config); ok {
		c.Document = d.documents[&c.OpenAPI]
		c.Secrets = d.sentBy(sec)
	}
	if c, ok := v.(*stdio.Config); ok {
		d.checkCommandLine(sec, c)
	}
	d.Validate(sec, v)
	if d.dir != "" {
		d.resolveFiles(sec, v)
	}
}

// Form implements strict.Schema.
func (*decoder) Form(t reflect.Type) (expected string, parse func(strict.Text) (any, error)) {
	switch {
	case t == reflect.TypeFor[bridge.Forward]():
		return "the name of a header, such as X-Tenant", func(t strict.Text) (any, error) { return parseForward(t.Value) }
	case t == reflect.TypeFor[limits.Rate]():
		return "a rate such as 10/s or 600/m", func(t strict.Text) (any, error) { return limits.ParseRate(t.Value) }
	case t == reflect.TypeFor[attempts]():
		const expected = "how often the request is made, 1 to 10, or off"
		return expected, func(t strict.Text) (any, error) {
			n, err := strconv.Atoi(t.Value)
			switch {
			case isOff(t):
				return attempts(1), nil
			case err != nil || n < 1 || n > 10 || t.Kind == strict.String && !t.Expanded:
				return nil, errors.New("expected " + expected)
			}
			return attempts(n), nil
		}
	case t == reflect.TypeFor[onOff]():
		return "off or on", func(t strict.Text) (any, error) {
			if !isOff(t) && !isOn(t) {
				return nil, errors.New("expected off or on")
			}
			return onOff(isOn(t)), nil
		}
	case t == reflect.TypeFor[caching]():
		const expected = "true, off, or how long answers are kept that do not say it themselves, such as 60s"
		return expected, func(t strict.Text) (any, error) {
			age, err := time.ParseDuration(t.Value)
			switch {
			case isOff(t) || isOn(t):
				return caching{on: isOn(t)}, nil
			case err != nil || age <= 0:
				return nil, errors.New("expected " + expected)
			}
			return caching{true, age}, nil
		}
	case t.Kind() == reflect.Int64 && t != reflect.TypeFor[time.Duration]():
		return "a number of bytes such as 16777216 or 16MiB", func(t strict.Text) (any, error) {
			if t.Kind != strict.Int {
				return ParseSize(t.Value)
			}
			n, err := strconv.ParseInt(strings.ReplaceAll(t.Value, "_", ""), 0, 64) // also 0x1000 and 1_000
			if err != nil || n < 0 {
				return nil, errors.New("expected a number of bytes such as 16777216 or 16MiB")
			}
			return Size(n), nil
		}
	}
	return "", nil
}

// Texts implements strict.Schema.
func (*decoder) Texts() setting.Texts { return texts }

// OtherKeys implements strict.Schema.
func (*decoder) OtherKeys(in reflect.Type) []string {
	switch in {
	case reflect.TypeFor[Config]():
		return []string{"mcpServers"}
	case reflect.TypeFor[Server]():
		return []string{"enabled"}
	}
	return nil
}

// Meant returns the valid name that the author of key probably meant, or "".
func (*decoder) Meant(key string, valid []string) string {
	// Names in files of other tools, and names whose letters differ too much for Distance.
	other := map[string]string{
		"cmd": "command", "arguments": "args", "environment": "env",
		"address": "url", "endpoint": "url",
		"dir": "cwd", "workdir": "cwd", "workingdirectory": "cwd", "envfile": "env_file",
		"port": "listen", "host": "listen", "bind": "listen", "addr": "listen", "hostname": "listen",
		"cors": "allowed_origins", "corsorigins": "allowed_origins", "origins": "allowed_origins",
		"auth": "access", "apikey": "access", "apikeys": "access", "token": "access", "tokens": "access", "authtokens": "access", "users": "access",
		"transport": "http", "disabledtools": "tools", "excludetools": "tools", "toolfilter": "tools", "includetools": "tools",
		"disabled": "enabled",
	}
	if name := other[similar.Fold(key)]; slices.Contains(valid, name) {
		return name
	}
	best, least := "", max(1, len(similar.Fold(key))/3)+1
	for _, name := range valid {
		if n := similar.Distance(similar.Fold(key), similar.Fold(name)); n < least {
			best, least = name, n
		}
	}
	return best
}

// CheckText looks for parts of a text that only a shell would replace. In a path they are a fault, elsewhere a warning.
// Messages do not show the text, which may be a secret.
func (d *decoder) CheckText(s *strict.Slot, text string) error {
	before := d.argument
	d.noteSecret(s, text)
	warned := d.warnSpelling(s, before, text)
	home, variable := OfShell(text)
	const braces = "$NAME has no meaning here: write ${NAME}, with braces"
	label, _, _ := strings.Cut(s.Label, ": item ")
	switch {
	case !home && !variable:
	case slices.Contains([]string{"command", "cwd", "env_file", "ca_file", "cert_file", "key_file", "key_files", "token_file", "state_dir", "keep_dir"}, label):
		if home {
			return errors.New("~ has no meaning here: write ${HOME} for the home folder")
		}
		return errors.New(braces)
	case home && strings.HasPrefix(s.Label, "args: item "):
		d.Warn(s.Line, "%s%s begins with ~, which reaches the server unchanged, since there is no shell: write ${HOME} for the home folder", s.Section.Where, s.Label)
	case warned:
	case bare.MatchString(text), // in a longer text, such as a password, a $NAME may be meant literally
		variable && slices.ContainsFunc([]string{"args: item ", "env: ", "headers: ", "openapi_headers: "}, func(key string) bool { return strings.HasPrefix(s.Label, key) }):
		d.Warn(s.Line, "%s%s has a $NAME without braces, which stays unchanged: to take it from the environment, write ${NAME}", s.Section.Where, s.Label)
	}
	return nil
}
