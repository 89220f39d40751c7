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
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Value is one setting as it counts, and where it is from.
type Value struct {
	// Key is below the file or a server, such as session_idle or limits.calls.
	Key string `json:"key"`
	// Value is a number, a time, a switch or one of a few words; how many entries a list
	// has, and set for what has more to it; *** for a text that may be a secret; none for
	// what is not set.
	Value string `json:"value"`
	// From is one of the constants below.
	From string `json:"from"`
	// Line is where the file has it, or what it is a part of; 0 unless it is FromFile, and
	// for files of other programs.
	Line int `json:"line,omitempty"`
	// Variables are those of the environment that the text of the file names.
	Variables []string `json:"variables,omitempty"`
	// Flag is that of the command line that has set it.
	Flag string `json:"flag,omitempty"`
	// Waits says that the file has another value, which counts after a restart.
	Waits bool `json:"waits_for_restart,omitempty"`
}

// Values of Value.From.
const (
	FromFile    = "file"
	FromDefault = "default"
	FromFlag    = "flag"
)

// depends are defaults that are none or the other, by what the server is like.
var depends = map[string]string{"cache.lists": "1m, 5s", "rest.refresh": "2s, 5m"}

// fileValues returns the settings of the file that count, without those of its servers.
func fileValues(c *config.Config) []Value {
	w := values{c: c}
	w.fields("", reflect.ValueOf(*c), reflect.ValueOf(config.Default()), false)
	return w.all
}

// serverValues returns the settings of the server of that name; nil if there is none.
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
	w := values{c: c, server: name}
	w.fields("", reflect.ValueOf(now), reflect.ValueOf(standard), false)
	return w.all
}

// values gathers settings.
type values struct {
	c      *config.Config
	server string
	all    []Value
}

// fields adds those of a struct below a key. zero says that its zero values stand for the
// standard ones.
func (w *values) fields(key string, v, standard reflect.Value, zero bool) {
	for f, field := range v.Fields() {
		below := strict.Key(f)
		if below == "" || below == "-" || key == "" && below == "servers" {
			continue
		}
		if key != "" {
			below = key + "." + below
		}
		w.walk(below, field, standard.FieldByIndex(f.Index), zero)
	}
}

// walk adds the setting of that key, or those below it.
func (w *values) walk(key string, v, standard reflect.Value, zero bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return // another kind of server, or a part that nobody has asked for
		}
		v, standard = v.Elem(), reflect.Zero(v.Type().Elem())
	}
	if v.Kind() == reflect.Struct && slices.ContainsFunc(strict.Keys(v.Type()), func(k string) bool { return k != "" }) {
		if off := v.FieldByName("Off"); off.IsValid() && off.Bool() {
			w.add(Value{Key: key, Value: "off"}, false)
			return
		}
		if known, ok := config.Standard(v.Type()); ok {
			standard, zero = known, true
		}
		w.fields(key, v, standard, zero)
		return
	}
	if zero && v.IsZero() && v.Kind() != reflect.Bool {
		if v = standard; v.IsZero() {
			w.add(Value{Key: key, Value: cmp.Or(depends[key], "none")}, true)
			return
		}
	}
	w.add(Value{Key: key, Value: w.shown(key, v)}, reflect.DeepEqual(v.Interface(), standard.Interface()))
}

// add adds a setting, which is the default unless somebody has said it.
func (w *values) add(v Value, standard bool) {
	at, said := w.c.Origin(w.server, v.Key)
	for above := v.Key; !said && !standard; { // it is said by what it is a part of
		i := strings.LastIndexByte(above, '.')
		if i < 0 {
			break
		}
		above = above[:i]
		at, said = w.c.Origin(w.server, above)
	}
	if w.server == "" {
		v.Flag = w.c.Flags[v.Key]
	}
	switch {
	case v.Flag != "":
		v.From = FromFlag
	case said:
		v.From, v.Line, v.Variables = FromFile, at.Line, at.Variables
	case standard:
		v.From = FromDefault
	default: // a file of another program, whose keys are others
		v.From = FromFile
	}
	w.all = append(w.all, v)
}

// shown returns a value as it may be shown.
func (w *values) shown(key string, v reflect.Value) string {
	switch one := v.Interface().(type) {
	case limits.Rate:
		return one.String()
	case time.Duration:
		if one == 0 && (key == "ping" || key == "idle_stop") {
			return "off"
		}
	}
	keys := strings.Split(key, ".")
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return fmt.Sprint(v.Interface())
	case reflect.String:
		secret := slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(hiddenKeys, k) })
		if v.String() != "" && (secret || !slices.Contains(shownKeys, keys[len(keys)-1])) {
			return hidden
		}
		return cmp.Or(w.c.Redact(v.String()), "none")
	}
	if v.IsZero() {
		return "none"
	}
	if kind := v.Kind(); kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 || kind == reflect.Map {
		if n := v.Len(); n != 1 {
			return fmt.Sprintf("%d entries", n)
		}
		return "1 entry"
	}
	return "set"
}

// ValuesShown are the settings of the file, or of a server, that count.
type ValuesShown struct {
	Values []Value `json:"values"`
}

// ShowValues returns the settings that count: those of a server if the query names one.
// pending are the keys that wait for a restart.
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
