package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// A rule checks a value beyond its type, and returns the value in normal form. Its error states only the rule, since
// the value may be a secret.
type rule func(value any) (any, error)

// normal makes a rule from a function that returns the normal form.
func normal[T any](f func(T) (T, error)) rule {
	return func(value any) (any, error) { return f(value.(T)) }
}

// must makes a rule from a condition. otherwise completes "must" in the error.
func must[T any](good func(T) bool, otherwise string) rule {
	return func(value any) (any, error) {
		if !good(value.(T)) {
			return nil, errors.New("must " + otherwise)
		}
		return value, nil
	}
}

// oneOf returns a rule that allows these values. Its error does not name the empty value, which means the default.
func oneOf(values ...string) rule {
	named := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	last := len(named) - 1
	return func(value any) (any, error) {
		if !slices.Contains(values, reflect.ValueOf(value).String()) {
			return nil, errors.New("must be " + strings.Join(named[:last], ", ") + " or " + named[last])
		}
		return value, nil
	}
}

// rules holds the rules for single values, by key. For a list, the rule applies to each item. Values of keys without a
// rule must be positive.
var rules = map[string]rule{
	"share":      oneOf(ShareSession, SharePrincipal, ShareCall, ShareAll),
	"era":        oneOf(EraAuto, EraLegacy, EraModern),
	"offer":      oneOf(OfferAll, OfferLegacy, ""),
	"tools_mode": oneOf(ToolsAll, ToolsSearch, ""),
	"ready":      oneOf(ReadyAny, ReadyAll),
	"reload":     oneOf(ReloadOn, ReloadOff),
	"log_level":  oneOf(LogDebug, LogInfo, LogWarn, LogError),
	"console":    oneOf(ConsoleOn, ConsolePayloads, ConsoleOff, ""),
	"place":      oneOf(PlaceHere, PlaceWorkers),
	"role":       oneOf(cluster.RoleAll, cluster.RoleFront, cluster.RoleWorker),
	"store_lost": oneOf(StoreLostServe, StoreLostStop),
	"replay":     oneOf(ReplayOn, ReplayOff),

	"listen": normal(checkListen),
	"console_listen": normal(func(s string) (string, error) {
		if s == "" {
			return "", nil
		}
		return checkListen(s)
	}),
	"base_path":       normal(address.BasePath),
	"public_url":      normal(func(s string) (string, error) { return s, checkPublicURL(s) }),
	"allowed_origins": normal(address.Origin),
	"allowed_hosts":   normal(address.Host),
	"forward":         normal(checkForward),
	"revision": must(func(s string) bool { return s == "" || slices.Contains(era.Supported(), s) },
		"be one of "+strings.Join(era.Supported(), ", ")),
	"separator": must(func(s string) bool { return isPlain(s, 8) },
		"be 1 to 8 letters, digits, '_', '.' and '-': it becomes a part of the names of tools"),
	"key_prefix": must(func(s string) bool { return isPlain(s, 64) }, "be 1 to 64 letters, digits, '_', '.' and '-'"),
	"prefix": must(func(s string) bool { return s == "" || isPlain(s, len(s)) },
		"consist of letters, digits, '_', '.' and '-': it becomes a part of the names of tools"),
	"drain":     must(func(d time.Duration) bool { return d >= 0 }, "not be negative"),
	"idle_stop": must(func(d time.Duration) bool { return d >= 0 }, "not be negative"),
	"lease":     must(func(d time.Duration) bool { return d >= 3*time.Second && d <= time.Minute }, "be 3s to 1m"),
	"ping": must(func(d time.Duration) bool { return d == 0 || d >= time.Second },
		"be at least 1s: each quiet connection is asked that often"),
	"restart_max_pause": must(func(d time.Duration) bool { return d >= time.Second }, "be at least 1s, which is the first pause"),
}

func checkListen(s string) (string, error) {
	at := Address(s)
	return at, address.CheckListen(at)
}

// RuleOf implements strict.Schema.
func (*decoder) RuleOf(in reflect.Type, key string) func(any) (any, error) {
	is := func(others ...reflect.Type) bool {
		return slices.ContainsFunc(others, func(t reflect.Type) bool { return t.PkgPath() == in.PkgPath() })
	}
	switch {
	case key == "env":
		return normal(checkVariable)
	case key == "headers", key == "openapi_headers":
		return normal(checkHeader)
	case is(reflect.TypeFor[Config]()):
		return ruleFor(key)
	case is(reflect.TypeFor[breaker.Options](), reflect.TypeFor[limits.Options](), reflect.TypeFor[retry.Options](), reflect.TypeFor[cache.Options]()),
		is(reflect.TypeFor[rest.Config](), reflect.TypeFor[rest.Tool]()) && notZeroInRest[key]:
		return notZero
	}
	return nil
}

// ruleFor returns the rule for the values of a key.
func ruleFor(key string) rule {
	if r := rules[key]; r != nil {
		return r
	}
	return positive
}

// positive is the rule for keys without a rule of their own: numbers must be at least 1, sizes at least 1KiB, durations
// longer than 0.
func positive(value any) (any, error) {
	switch v := value.(type) {
	case int:
		if v < 1 {
			return nil, errors.New("must be at least 1")
		}
	case Size:
		if v < 1<<10 {
			return nil, errors.New("must be at least 1KiB")
		}
	case time.Duration:
		if v <= 0 {
			return nil, errors.New("must be longer than 0")
		}
	}
	return value, nil
}

// notZero refuses 0. In a program 0 means the default, but the author of a file that writes 0 means none, or no limit.
func notZero(value any) (any, error) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Int, reflect.Int64: // durations are Int64
		if v.IsZero() {
			return nil, errors.New("must not be 0: leave it out for its default")
		}
	}
	return value, nil
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

// Address returns the listen address that a text means. A port alone, such as 8808, means that port on this machine
// only; :8808 means every network. Other texts stay as they are.
func Address(listen string) string { return address.Listen(listen) }

// Loopback reports whether only this machine can reach a listen address. An empty host means every network, so the
// result is false.
func Loopback(listen string) bool { return address.Loopback(listen) }

// Open reports whether other machines can reach the bridge, and use everything without a key.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

// OperatorsListen returns the address that serves the page and the API for operators.
func (c *Config) OperatorsListen() string { return cmp.Or(c.ConsoleListen, c.Listen) }

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

// A breach is a rule that the value of a key breaks, alone or together with the value of another key.
type breach struct{ key, other, rule string }

type breaches []breach

// add adds a rule that a key breaks alone.
func (b *breaches) add(key, format string, args ...any) {
	b.with(key, "", fmt.Sprintf(format, args...))
}

// with adds a rule that a key breaks together with the key other.
func (b *breaches) with(key, other, rule string) { *b = append(*b, breach{key, other, rule}) }

// breaches returns the broken rules about several keys of the file.
func (c *Config) breaches() (all breaches) {
	if c.MaxInFlight < c.MaxMessage {
		all.with("max_message", "max_bytes_in_flight", "must not be larger than max_bytes_in_flight: such a message could never pass")
	}
	c.Cluster.check(&all, c.Listen, slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Place == PlaceWorkers }))
	c.checkOAuth(&all)
	c.checkAccess(&all)
	c.checkGroups(&all)
	return all
}

// checkAmong returns the rules about a server that are broken together with other parts of the configuration. owners
// maps the prefixes of the servers that were checked before to their names.
func (c *Config) checkAmong(s *Server, owners map[string]string) (all breaches) {
	if owner, taken := owners[s.Prefix]; taken && owner != s.Name {
		all.add("prefix", "is that of server %q too: choose another one, since the names of their tools would be the same", owner)
	} else if s.Prefix != "" {
		owners[s.Prefix] = s.Name
	}
	c.checkIdentity(&all, s)
	c.checkReferences(&all, s)
	switch {
	case s.Place != PlaceWorkers:
	case s.Stdio == nil:
		all.add("place", "cannot be workers for this server: leave it out, since only stdio has a process that workers can run")
	case !c.Cluster.Enabled():
		all.add("place", "is workers, which needs a cluster: add cluster, or leave place out")
	}
	return all
}

// maxPrefix is the longest prefix that a file may set. Some clients accept at most 64 characters for a prefix and a
// name.
const maxPrefix = 40

// breaches returns the broken rules about several keys of a server.
func (s *Server) breaches() (all breaches) {
	if s.MaxTimeout < s.Timeout {
		all.with("timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set")
	}
	// The default prefix may be longer: a long name is no fault of a server that is not used at the aggregate.
	if rest, own := strings.CutPrefix(s.Prefix, s.Name); len(s.Prefix) > maxPrefix && (!own || len(rest) > 8) {
		all.add("prefix", "must not be longer than %d characters", maxPrefix)
	}
	switch modern := era.IsModern(s.Revision); {
	case (s.SSE != nil || s.HTTP != nil && s.HTTP.Transport == remote.TransportSSE) && (modern || s.Era == EraModern):
		all.with("era", "revision", "is not possible over HTTP+SSE: use http in place of sse, or leave it out")
	case modern && s.Era == EraLegacy, s.Revision != "" && !modern && s.Era == EraModern:
		all.with("revision", "era", "does not belong to the era that is set: leave one of the two out")
	}
	s.checkForwards(&all)
	checkFilter(&all, "tools", s.Tools)
	checkFilter(&all, "prompts", s.Prompts)
	checkFilter(&all, "resources", s.Resources)
	s.checkRest(&all)
	s.checkRemote(&all)
	return all
}

// kindKeys returns the keys of all kinds of servers.
var kindKeys = sync.OnceValue(func() []string {
	var all []string
	for _, f := range setting.Fields(reflect.TypeFor[Server]()) {
		if f.Type.Kind() == reflect.Pointer {
			all = append(all, f.Key)
		}
	}
	return all
})

// kinds returns the keys of the kinds that the server has.
func (s *Server) kinds() []string {
	var set []string
	if s.Adapter != nil {
		set = append(set, "Adapter")
	}
	v := reflect.ValueOf(s).Elem()
	for _, f := range setting.Fields(v.Type()) {
		if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Pointer && !field.IsNil() {
			set = append(set, f.Key)
		}
	}
	return set
}

// Validate checks settings that a program made, or changed after Load, by the rules for files. It changes nothing, and
// joins all faults in its error.
func (c *Config) Validate() error {
	errs := check("", reflect.ValueOf(c).Elem())
	for _, b := range c.breaches() {
		errs = append(errs, fmt.Errorf("%s %s", b.key, b.rule))
	}
	if c.Cluster.Enabled() {
		for key, value := range map[string]any{
			"lease":      c.Cluster.Lease,
			"key_prefix": c.Cluster.KeyPrefix,
			"store_lost": c.Cluster.StoreLost,
			"role":       c.Cluster.Role,
			"replay":     c.Cluster.Replay,
		} {
			if _, err := rules[key](value); err != nil {
				errs = append(errs, fmt.Errorf("cluster: %s %w", key, err))
			}
		}
	}
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("there are no servers"))
	}
	for i := range c.OAuth {
		if f := c.OAuth[i].Front; f != nil {
			errs = append(errs, f.Validate())
		}
	}
	names, owners := map[string]bool{}, map[string]string{}
	for i := range c.Servers {
		s := &c.Servers[i]
		where := fmt.Sprintf("server %q: ", s.Name)
		if err := checkName(s.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s%w", where, err))
		}
		if names[s.Name] {
			errs = append(errs, errors.New(where+"there are two of this name"))
		}
		names[s.Name] = true
		if s.Unusable != "" { // its settings are incomplete
			continue
		}
		if n := len(s.kinds()); n != 1 {
			errs = append(errs, fmt.Errorf("%sexactly one kind must be set, there are %d", where, n))
		}
		errs = append(errs, check(where, reflect.ValueOf(s).Elem())...)
		for _, b := range append(s.breaches(), c.checkAmong(s, owners)...) {
			errs = append(errs, fmt.Errorf("%s%s %s", where, b.key, b.rule))
		}
	}
	return errors.Join(errs...)
}

// check applies the rules to every field of a Config or a Server, and calls Validate of the parts that have it.
func check(where string, v reflect.Value) []error {
	var errs []error
	for _, f := range setting.Fields(v.Type()) {
		name, field := f.Key, v.FieldByIndex(f.Index)
		values := []reflect.Value{field}
		switch field.Kind() {
		case reflect.Slice:
			values = values[:0]
			for i := range field.Len() {
				values = append(values, field.Index(i))
			}
		case reflect.Pointer, reflect.Struct:
			if field.Kind() == reflect.Struct && field.CanAddr() {
				field = field.Addr()
			}
			c, ok := field.Interface().(interface{ Validate() error })
			if field.Kind() != reflect.Pointer || field.IsNil() || !ok {
				continue
			}
			if err := c.Validate(); err != nil {
				for message := range strings.SplitSeq(err.Error(), "\n") {
					errs = append(errs, fmt.Errorf("%s%s: %s", where, name, message))
				}
			}
			continue
		}
		for _, value := range values {
			if _, err := ruleFor(name)(value.Interface()); err != nil {
				shown := fmt.Sprintf("%#v", value)
				switch v := value.Interface().(type) {
				case bridge.Forward:
					shown = strconv.Quote(v.From + " as " + v.To)
				case fmt.Stringer:
					shown = v.String()
				}
				errs = append(errs, fmt.Errorf("%s%s is %s: %w", where, name, shown, err))
			}
		}
	}
	return errs
}
