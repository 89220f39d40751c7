package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Effect says when a changed setting takes effect while the bridge runs. The effect of each key is in the tag of its
// field, and in docs/reload.md.
type Effect string

// The effects, from the earliest to the latest.
const (
	// EffectLive applies from the next call on. The bridge closes no connection.
	EffectLive Effect = "live"
	// EffectRenew applies at once: the next call of an open session gets another connection, and the former connection
	// closes after its last call. All other changed settings of the server apply with it.
	EffectRenew Effect = "renew"
	// EffectNext applies to new sessions at the server's own address, to stateless clients, and to all sessions of the
	// aggregate. Other sessions keep the former settings until they end.
	EffectNext Effect = "next"
	// EffectRestart applies after a restart of the bridge. Until then the former value applies.
	EffectRestart Effect = "restart"
)

// Change is one difference between two configurations.
type Change struct {
	// Path is the key, such as session_idle, servers.files.limits.calls or access.ops.
	Path string `json:"path"`
	// From and To are the values if they are numbers, sizes, durations, booleans or certain words, or "default (512)"
	// for a key that is not set. They are empty for other values, which may be secrets.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Effect says when the change applies.
	Effect Effect `json:"effect"`
}

// String returns the change as a line: path, values and effect.
func (c Change) String() string {
	values := ""
	if c.From != "" || c.To != "" {
		values = " " + c.From + " → " + c.To
	}
	return c.Path + values + " (" + string(c.Effect) + ")"
}

// Diff returns the changes from was to now: first those of the file's own keys in the order of Config, then those of
// servers in the order of now.
func Diff(was, now *Config) []Change {
	d := diff{was: was, now: now}
	a, b := reflect.ValueOf(was).Elem(), reflect.ValueOf(now).Elem()
	for _, f := range setting.Fields(a.Type()) {
		key := f.Key
		switch {
		case !f.Keyed() || key == "servers" || key == "access":
		case key == "tls" && (was.TLS.CertFile == "") != (now.TLS.CertFile == ""),
			key == "session_idle" && was.Cluster.Enabled():
			d.walk(key, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index), reflect.Value{}, EffectRestart)
		default:
			d.walk(key, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index), reflect.Value{}, Effect(f.Tag.Get("effect")))
		}
	}
	d.access()
	d.servers()
	return d.all
}

// Running returns the configuration of a bridge after a reload from was to now: it is now, but with the former values
// of the keys that need a restart. changes is the result of Diff.
func Running(was, now *Config, changes []Change) *Config {
	c := *now
	c.Traces, c.Meters = was.Traces, was.Meters
	if with := was.withKeys(now); len(was.Access) > 0 && len(now.Access) > 0 && len(with.Access) > 0 {
		was = with
	}
	a, b := reflect.ValueOf(was).Elem(), reflect.ValueOf(&c).Elem()
	for _, change := range changes {
		if change.Effect != EffectRestart {
			continue
		}
		f := setting.ByKey(a.Type(), change.key())
		b.FieldByIndex(f.Index).Set(a.FieldByIndex(f.Index))
	}
	return &c
}

// key returns the top-level key of the file that the change is about.
func (c Change) key() string {
	key, _, _ := strings.Cut(c.Path, ".")
	return key
}

// diff collects changes.
type diff struct {
	was, now *Config
	all      []Change
}

// add adds a change from a to b. If standard is valid, a zero value is shown as the default standard.
func (d *diff) add(path string, a, b, standard reflect.Value, effect Effect) {
	c := Change{Path: path, Effect: effect}
	if from, ok := shown(path, a, standard); ok {
		if to, ok := shown(path, b, standard); ok {
			c.From, c.To = d.was.Redact(from), d.now.Redact(to)
		}
	}
	d.all = append(d.all, c)
}

// shownKeys are the keys whose texts are never secrets: names, the bridge's own addresses, and keywords.
var shownKeys = []string{"listen", "console_listen", "base_path", "public_url", "ready", "reload", "console", "log_level", "offer", "separator", "share", "place", "era", "revision", "prefix", "tools_mode", "transport", "mode"}

// depends describes the defaults that depend on other keys, or on the kind of the server.
var depends = map[string]string{"queue": "as calls", "lists": "1m for rest, else 5s"}

// shown returns the text of a value. It reports false if the value may be a secret. standard is as in add.
func shown(path string, v, standard reflect.Value) (string, bool) {
	if !v.IsValid() {
		return "", false
	}
	if v.IsZero() && standard.IsValid() && !standard.IsZero() {
		text, ok := standard.String(), true
		if standard.Kind() == v.Kind() {
			text, ok = shown(path, standard, reflect.Value{})
		}
		return "default (" + text + ")", ok
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	switch v.Kind() {
	case reflect.String:
		return cmp.Or(v.String(), "none"), slices.Contains(shownKeys, key)
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		if d, ok := v.Interface().(time.Duration); ok && d == 0 {
			return "0s", true
		}
		if _, ok := v.Interface().(RestBytes); ok || key == "bytes" {
			return Size(v.Int()).String(), true
		}
		return fmt.Sprint(v.Interface()), true
	}
	return "", false
}

// walk adds the differences between a and b, the values at path. standard is as in add.
func (d *diff) walk(path string, a, b, standard reflect.Value, effect Effect) {
	switch {
	case same(a, b):
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		d.walk(path, a.Elem(), b.Elem(), reflect.Value{}, effect)
	case a.Kind() == reflect.Struct && len(setting.Keys(a.Type())) > 0:
		n := len(d.all)
		defaults, known := Standard(a.Type())
		for _, f := range setting.Fields(a.Type()) {
			if !f.Keyed() {
				continue
			}
			var standard reflect.Value
			if text := depends[f.Key]; text != "" {
				standard = reflect.ValueOf(text)
			} else if known {
				standard = defaults.FieldByIndex(f.Index)
			}
			d.walk(path+"."+f.Key, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index), standard, cmp.Or(Effect(f.Tag.Get("effect")), effect))
		}
		if len(d.all) == n { // the difference has no key, such as an inline document
			d.add(path, reflect.Value{}, reflect.Value{}, reflect.Value{}, effect)
		}
	default:
		d.add(path, a, b, standard, effect)
	}
}

// same reports whether a and b are equal. Unlike reflect.DeepEqual, it compares functions by their code, and comparable
// values in interfaces by ==.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return a.Equal(b)
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() || !a.IsNil() && !b.IsNil() && same(a.Elem(), b.Elem())
	case reflect.Func:
		return a.Pointer() == b.Pointer()
	case reflect.Interface:
		if a.IsNil() || b.IsNil() || a.Comparable() && b.Comparable() {
			return a.IsNil() == b.IsNil() && (a.IsNil() || a.Equal(b))
		}
	case reflect.Slice, reflect.Map:
		if a.Len() == 0 && b.Len() == 0 {
			return a.IsNil() == b.IsNil()
		}
	case reflect.Struct:
		if len(setting.Keys(a.Type())) == 0 {
			break
		}
		return !slices.ContainsFunc(setting.Fields(a.Type()), func(f setting.Field) bool { return !same(a.FieldByIndex(f.Index), b.FieldByIndex(f.Index)) })
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// access adds the changes of access rules. Rules of the same name are the same rule.
func (d *diff) access() {
	after := d.was.withKeys(d.now).Access
	switch {
	case len(d.was.Access) == 0 && len(d.now.Access) == 0:
		return
	case len(d.was.Access) == 0 || len(d.now.Access) == 0 || len(after) == 0: // each caller would become another principal
		d.all = append(d.all, Change{Path: "access", Effect: EffectRestart})
		return
	case !reflect.DeepEqual(d.was.userRules(), d.now.userRules()): // another rule may become the first that matches a user
		d.all = append(d.all, Change{Path: "access", Effect: EffectRestart})
	}
	was, stays := map[string]Access{}, map[string]bool{}
	for _, a := range after {
		stays[a.Name] = true
	}
	for _, a := range d.was.Access {
		was[a.Name] = a
		if !stays[a.Name] {
			d.all = append(d.all, Change{
				Path:   "access." + a.Name,
				From:   "there",
				To:     "removed",
				Effect: EffectLive,
			})
		}
	}
	for _, a := range after {
		before, there := was[a.Name]
		if !there {
			d.all = append(d.all, Change{
				Path:   "access." + a.Name,
				From:   "none",
				To:     "added",
				Effect: EffectLive,
			})
			continue
		}
		d.walk("access."+a.Name, reflect.ValueOf(before), reflect.ValueOf(a), reflect.Value{}, EffectLive)
	}
}

// withKeys returns c with the rules for keys of now, and c's own rules for users, which change only after a restart. A
// rule for a key whose name is that of such a rule for users waits for the restart, too.
func (c *Config) withKeys(now *Config) *Config {
	with := *c
	with.Access = c.userRules()
	for _, a := range now.Access {
		if !a.users() && !slices.ContainsFunc(c.userRules(), func(u Access) bool { return u.Name == a.Name }) {
			with.Access = append(with.Access, a)
		}
	}
	return &with
}

func byName(c *Config) map[string]*Server {
	all := map[string]*Server{}
	for i := range c.Servers {
		all[c.Servers[i].Name] = &c.Servers[i]
	}
	return all
}

// servers adds the changes of servers.
func (d *diff) servers() {
	was, now := byName(d.was), byName(d.now)
	var stay, stayed []string // names that both have, in the former and in the new order
	for _, s := range d.was.Servers {
		if now[s.Name] == nil {
			d.all = append(d.all, Change{
				Path:   "servers." + s.Name,
				From:   "there",
				To:     "removed",
				Effect: EffectLive,
			})
		} else {
			stay = append(stay, s.Name)
		}
	}
	for _, s := range d.now.Servers {
		if was[s.Name] != nil {
			stayed = append(stayed, s.Name)
		}
	}
	if !slices.Equal(stay, stayed) {
		d.all = append(d.all, Change{
			Path:   "servers",
			From:   "order",
			To:     "another order",
			Effect: EffectLive,
		})
	}
	for i := range d.now.Servers {
		s := &d.now.Servers[i]
		path := "servers." + s.Name
		before := was[s.Name]
		if before == nil {
			d.all = append(d.all, Change{
				Path:   path,
				From:   "none",
				To:     "added",
				Effect: EffectLive,
			})
			continue
		}
		if before == s {
			continue
		}
		d.server(path, before, s)
	}
	if one, other := len(d.was.Servers) == 1, len(d.now.Servers) == 1; one != other {
		d.all = append(d.all, Change{
			Path:   "servers",
			From:   fmt.Sprint(len(d.was.Servers)),
			To:     fmt.Sprint(len(d.now.Servers)),
			Effect: EffectNext,
		})
	}
}

// nextOnly reports whether a change of key, whose effect is EffectLive, applies to that server only by EffectNext. Then
// the open connections were made with the former value, or lack a guard that was off.
func nextOnly(key string, was, now *Server) bool {
	switch key {
	case "breaker":
		return was.Rest != nil || was.Breaker.Off
	case "cache":
		return was.Cache.Off
	case "retry":
		return !was.Retry.On()
	case "limits":
		return was.Place == PlaceWorkers || now.Limits.HasRate() && !was.Limits.HasRate()
	case "max_children":
		return was.Place == PlaceWorkers
	case "timeout", "max_timeout", "tools", "resources", "prefix": // the tools of the API were made with them
		return was.Rest != nil
	}
	return false
}

// server adds the changes of one server.
func (d *diff) server(path string, was, now *Server) {
	a, b := reflect.ValueOf(was).Elem(), reflect.ValueOf(now).Elem()
	if !same(a, b) {
		n := len(d.all)
		for _, f := range setting.Fields(a.Type()) {
			if !f.Keyed() {
				continue
			}
			effect := Effect(f.Tag.Get("effect"))
			if f.Key == "forward" && slices.ContainsFunc(was.Forward, func(f bridge.Forward) bool { return !slices.Contains(now.Forward, f) }) {
				effect = EffectRenew
			}
			if effect == EffectLive && nextOnly(f.Key, was, now) {
				effect = EffectNext
			}
			d.walk(path+"."+f.Key, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index), reflect.Value{}, effect)
		}
		if len(d.all) == n { // only Adapter differs, which has no key
			d.all = append(d.all, Change{Path: path, Effect: EffectNext})
		}
	}
	for _, file := range was.settingFiles() {
		if d.was.files[file.path] != d.now.files[file.path] && slices.Contains(now.settingFiles(), file) {
			d.all = append(d.all, Change{
				Path:   path + "." + file.key,
				From:   "content",
				To:     "another content",
				Effect: EffectRenew,
			})
		}
	}
}
