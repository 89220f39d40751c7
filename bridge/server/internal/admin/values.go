package admin

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Value is one setting in effect, and its source.
type Value struct {
	// Key is the key in the file or below a server, such as session_idle or limits.calls.
	Key string `json:"key"`
	// Value is a number, a time, a switch or a word. For a short list, it is the texts or the names of the entries;
	// for a longer list, their number; for a larger structure, "set". A text that may be a secret is ***, and an
	// unset value "none".
	Value string `json:"value"`
	// From is FromFile, FromFlag or FromDefault.
	From string `json:"from"`
	// Line is the line in the file of the setting, or of the setting that contains it. It is 0 if From is not
	// FromFile, or if the file belongs to another program.
	Line int `json:"line,omitempty"`
	// Variables are the environment variables that the file's text names.
	Variables []string `json:"variables,omitempty"`
	// Flag is the flag of the command line that set the value.
	Flag string `json:"flag,omitempty"`
	// Waits means that the file has another value, which needs a restart.
	Waits bool `json:"waits_for_restart,omitempty"`
}

// These are the values of Value.From.
const (
	FromFile    = "file"
	FromDefault = "default"
	FromFlag    = "flag"
)

// depends has the defaults that depend on the kind of server.
var depends = map[string]string{"cache.lists": "1m, 5s", "rest.refresh": "2s, 5m"}

// fileValues returns the settings of the file in effect, without the settings of its servers.
func fileValues(c *config.Config) []Value {
	v := values{c: c}
	v.fields("", reflect.ValueOf(*c), reflect.ValueOf(config.Default()), false)
	return v.all
}

// serverValues returns the settings of a server; nil if the server does not exist.
func serverValues(c *config.Config, name string) []Value {
	i := slices.IndexFunc(c.Servers, func(s config.Server) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	s := c.Servers[i]
	standard := config.DefaultServer(name, s.Share)
	standard.Share, standard.Prefix = config.ShareSession, name+c.Separator
	now := s
	now.Offer = cmp.Or(s.Offer, c.Offer)
	if standard.Offer = c.Offer; now.Limits.Queue == 0 {
		now.Limits.Queue = now.Limits.Calls
	}
	v := values{c: c, server: name}
	v.fields("", reflect.ValueOf(now), reflect.ValueOf(standard), false)
	return v.all
}

// values collects settings.
type values struct {
	c      *config.Config
	server string
	all    []Value
}

// fields adds the settings of a struct below a key. If zero is set, the default is in effect where the value is zero.
func (v *values) fields(key string, value, standard reflect.Value, zero bool) {
	for _, f := range setting.Fields(value.Type()) {
		below := f.Key
		if !f.Keyed() || key == "" && below == "servers" {
			continue
		}
		if key != "" {
			below = key + "." + below
		}
		v.walk(below, value.FieldByIndex(f.Index), standard.FieldByIndex(f.Index), zero)
	}
}

// walk adds the setting of a key, or the settings below the key.
func (v *values) walk(key string, value, standard reflect.Value, zero bool) {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return // another kind of server, or an unset part
		}
		value, standard = value.Elem(), reflect.Zero(value.Type().Elem())
	}
	if value.Kind() == reflect.Struct && len(setting.Keys(value.Type())) > 0 {
		if off := value.FieldByName("Off"); off.IsValid() && off.Bool() {
			v.add(Value{Key: key, Value: "off"}, false)
			return
		}
		if known, ok := config.Standard(value.Type()); ok {
			standard, zero = known, true
		}
		v.fields(key, value, standard, zero)
		return
	}
	if zero && value.IsZero() && value.Kind() != reflect.Bool {
		if value = standard; value.IsZero() {
			v.add(Value{Key: key, Value: cmp.Or(depends[key], "none")}, true)
			return
		}
	}
	v.add(Value{Key: key, Value: v.shown(key, value)}, reflect.DeepEqual(value.Interface(), standard.Interface()))
}

// add adds a setting. standard means that its value is the default.
func (v *values) add(value Value, standard bool) {
	at, said := v.c.Origin(v.server, value.Key)
	for above := value.Key; !said && !standard; { // a key above value.Key may set it
		i := strings.LastIndexByte(above, '.')
		if i < 0 {
			break
		}
		above = above[:i]
		at, said = v.c.Origin(v.server, above)
	}
	if v.server == "" {
		value.Flag = v.c.Flags[value.Key]
	}
	switch {
	case value.Flag != "":
		value.From = FromFlag
	case said:
		value.From, value.Line, value.Variables = FromFile, at.Line, at.Variables
	case standard:
		value.From = FromDefault
	default: // a file of another program, with other keys
		value.From = FromFile
	}
	v.all = append(v.all, value)
}

// shown returns a value as text, without secrets.
func (v *values) shown(key string, value reflect.Value) string {
	switch one := value.Interface().(type) {
	case limits.Rate:
		return one.String()
	case time.Duration:
		if one == 0 && (key == "ping" || key == "idle_stop") {
			return "off"
		}
	}
	keys := strings.Split(key, ".")
	switch value.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return fmt.Sprint(value.Interface())
	case reflect.String:
		text := v.c.Redact(value.String())
		if at, _ := v.c.Origin(v.server, key); len(at.Variables) > 0 && !strings.Contains(text, "${") {
			return hidden // the value of a variable, in another form
		}
		return cmp.Or(shown(text, keys[len(keys)-1], slices.ContainsFunc(keys, isSecret)), "none")
	}
	if value.IsZero() {
		return "none"
	}
	if kind := value.Kind(); kind == reflect.Slice && value.Type().Elem().Kind() != reflect.Uint8 || kind == reflect.Map {
		if short := v.listed(key, value); short != "" {
			return short
		}
		if n := value.Len(); n != 1 {
			return fmt.Sprintf("%d entries", n)
		}
		return "1 entry"
	}
	return "set"
}

// maxListed bounds the text of a list, in bytes.
const maxListed = 100

// listed returns the entries of a short list: texts, or the names of structures and of the keys of a map. listed
// returns nothing for other lists, for arguments of programs, and for lists that have variables or what may be a
// secret.
func (v *values) listed(key string, value reflect.Value) string {
	keys := strings.Split(key, ".")
	last := keys[len(keys)-1]
	if at, _ := v.c.Origin(v.server, key); len(at.Variables) > 0 || slices.Contains(commandKeys, last) {
		return ""
	}
	var all []string
	if value.Kind() == reflect.Map {
		for _, k := range value.MapKeys() {
			all = append(all, k.String())
		}
		slices.Sort(all)
	} else {
		for _, one := range value.Seq2() {
			if one.Kind() == reflect.Struct {
				one = one.FieldByName("Name")
			}
			if one.Kind() != reflect.String || one.String() == "" {
				return ""
			}
			text := shown(v.c.Redact(one.String()), last, slices.ContainsFunc(keys, isSecret))
			if text == hidden {
				return ""
			}
			all = append(all, text)
		}
	}
	if short := strings.Join(all, ", "); len(short) <= maxListed {
		return short
	}
	return ""
}

// ValuesShown has the settings in effect of the file, or of a server.
type ValuesShown struct {
	Values []Value `json:"values"`
}

// ShowValues returns the settings in effect: of the file, or of the server that the query names. pending are the keys
// that wait for a restart.
func ShowValues(c *Call, now *config.Config, pending []string) (any, error) {
	if server := c.Query.Get("server"); server != "" {
		all := serverValues(now, server)
		if all == nil {
			return nil, NotFound("server of that name")
		}
		return &ValuesShown{all}, nil
	}
	all := fileValues(now)
	for i := range all {
		v := &all[i]
		if v.Key == "console" && v.From == FromDefault {
			if v.Value = config.ConsoleOff; HasConsole(now) {
				v.Value = config.ConsoleOn
			}
		}
		v.Waits = slices.ContainsFunc(pending, func(path string) bool {
			return path == v.Key || strings.HasPrefix(path, v.Key+".") || strings.HasPrefix(v.Key, path+".")
		})
	}
	return &ValuesShown{all}, nil
}
