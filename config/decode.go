package config

import (
	"errors"
	"os"
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

// Fault is one fault of a file, with its line.
type Fault = strict.Fault

// Faults is the error of Load and Parse: all faults of the file, in the order of lines.
type Faults = strict.Faults

// A decoder turns one file into a Config. It embeds the strict decoder, and adds the rules of our settings.
type decoder struct {
	*strict.Decoder
	dir       string             // folder of the file; "" if the decoder may read no other files
	sent      []sent             // values from the environment that servers of the kind rest send in headers, queries or arguments
	documents map[*string][]byte // inline documents, by the field that otherwise holds the document's address
	sections  []*strict.Section  // sections of the servers, in the order of Config.Servers
	off       []string           // names of servers with enabled: false
	proxy     *strict.Entry      // key mcpProxy of a file of TBXark's mcp-proxy, or nil
	tokens    []int              // lines of the tokens in such a file, in the order of their rules in Config.Access
	programs  map[string]error   // result of executable, by path
	argument  string             // the last argument that noteSecret saw, if the next text follows it
	spares    bool               // a variable that is not set costs only its server
	secret    *strict.Slot       // the first secret that is written in the file; nil without one
}

var _ strict.Schema = (*decoder)(nil)

func newDecoder(file, dir string, env func(string) (string, bool)) *decoder {
	if env == nil {
		env = os.LookupEnv
	}
	d := &decoder{dir: dir, programs: map[string]error{}}
	d.Decoder = strict.New(file, "mcp-bridge", env, d)
	return d
}

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
			return d.shortCommand(s, strict.Resolve(n).Value, into), true
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

func isOn(t strict.Text) bool {
	return t.Value == "on" || t.Kind == strict.Bool && strings.EqualFold(t.Value, "true")
}

func isOff(t strict.Text) bool {
	return t.Value == "off" || t.Kind == strict.Bool && strings.EqualFold(t.Value, "false")
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
