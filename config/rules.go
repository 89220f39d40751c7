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
	"github.com/mcp-bridge/bridge/internal/strict"
)

// A rule checks a value beyond its type and returns its normal form. Its error states only
// the rule, because the value may be a secret.
type rule func(value any) (any, error)

// normal turns a function that returns the normal form into a rule.
func normal[T any](f func(T) (T, error)) rule {
	return func(value any) (any, error) { return f(value.(T)) }
}

// must turns a condition into a rule.
func must[T any](good func(T) bool, otherwise string) rule {
	return func(value any) (any, error) {
		if !good(value.(T)) {
			return nil, errors.New("must " + otherwise)
		}
		return value, nil
	}
}

// oneOf returns a rule that allows some values. Its error does not name an empty one, which is
// the default.
func oneOf(values ...string) rule {
	named := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	last := len(named) - 1
	return must(func(s string) bool { return slices.Contains(values, s) }, "be "+strings.Join(named[:last], ", ")+" or "+named[last])
}

// rules holds the rules of single values by key; the rule of a list applies to each item. Values
// of all other keys must be positive.
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

// ruleFor returns the rule for a key of the configuration.
func ruleFor(key string) rule {
	if r := rules[key]; r != nil {
		return r
	}
	return positive
}

// positive refuses numbers and durations of 0 or less.
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

// notZero refuses 0. In a program it stands for the default, but in a file its author means none,
// or no limit.
func notZero(value any) (any, error) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Int, reflect.Int64: // durations too
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

// checkHeader checks the name of a header. The error does not show it: it may be NAME=SECRET.
func checkHeader(name string) (string, error) {
	if !httpguts.ValidHeaderFieldName(name) {
		return "", errors.New("a key is not the name of a header: write NAME: value")
	}
	return name, nil
}

// Address returns the address for a text: a port alone, such as 8808, is on this machine only,
// and :8808 is on every network. Any other text is returned unchanged.
func Address(listen string) string { return address.Listen(listen) }

// Loopback reports whether only this machine can reach a listen address. An empty host means
// every network.
func Loopback(listen string) bool { return address.Loopback(listen) }

// Open reports whether other machines can reach the bridge and use everything.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

// OperatorsListen returns the address of the page and the API for operators.
func (c *Config) OperatorsListen() string { return cmp.Or(c.ConsoleListen, c.Listen) }

// checkName checks the name of a server.
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

// A breach is a rule that a key breaks, alone or together with another key.
type breach struct{ key, other, rule string }

// breaches are broken rules.
type breaches []breach

// add adds a rule that a key breaks alone.
func (b *breaches) add(key, format string, args ...any) {
	b.with(key, "", fmt.Sprintf(format, args...))
}

// with adds a rule that a key breaks together with another one.
func (b *breaches) with(key, other, rule string) { *b = append(*b, breach{key, other, rule}) }

// breaches returns the broken rules about several keys of the file.
func (c *Config) breaches() (all breaches) {
	if c.MaxInFlight < c.MaxMessage {
		all.with("max_message", "max_bytes_in_flight", "must not be larger than max_bytes_in_flight: such a message could never pass")
	}
	c.Cluster.check(&all, c.Listen, slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Place == PlaceWorkers }))
	c.checkOAuth(&all)
	c.checkAccess(&all)
	return all
}

// checkAmong returns the broken rules of a server that depend on the rest of the configuration.
// owners maps prefixes to the servers checked before.
func (c *Config) checkAmong(s *Server, owners map[string]string) (all breaches) {
	if owner, taken := owners[s.Prefix]; taken && owner != s.Name {
		all.add("prefix", "is that of server %q too: choose another one, since the names of their tools would be the same", owner)
	} else if s.Prefix != "" {
		owners[s.Prefix] = s.Name
	}
	c.checkIdentity(&all, s)
	switch {
	case s.Place != PlaceWorkers:
	case s.Stdio == nil:
		all.add("place", "cannot be workers for this server: leave it out, since only stdio has a process that workers can run")
	case !c.Cluster.Enabled():
		all.add("place", "is workers, which needs a cluster: add cluster, or leave place out")
	}
	return all
}

// maxPrefix leaves room for a name: some clients accept at most 64 characters.
const maxPrefix = 40

// breaches returns the broken rules about several keys of a server.
func (s *Server) breaches() (all breaches) {
	if s.MaxTimeout < s.Timeout {
		all.with("timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set")
	}
	// The default may be longer: a long name is no fault of a server outside of the aggregate.
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

// kindKeys returns the names of all kinds.
var kindKeys = sync.OnceValue(func() []string {
	var all []string
	for f := range reflect.TypeFor[Server]().Fields() {
		if f.Type.Kind() == reflect.Pointer {
			all = append(all, strict.Key(f))
		}
	}
	return all
})

// kinds returns the names of the kinds that are set.
func (s *Server) kinds() []string {
	var set []string
	if s.Adapter != nil {
		set = append(set, "Adapter")
	}
	v := reflect.ValueOf(s).Elem()
	for _, f := range exportedFields(v.Type()) {
		if field := v.Field(f.index); field.Kind() == reflect.Pointer && !field.IsNil() {
			set = append(set, f.key)
		}
	}
	return set
}

// Validate checks settings that a program made, or changed after Load, by the rules of the file.
// It changes nothing, and its error has all faults.
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

// check applies the rules to every field of Config or Server, and validates the kinds.
func check(where string, v reflect.Value) []error {
	var errs []error
	for _, f := range exportedFields(v.Type()) {
		name, field := f.key, v.Field(f.index)
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
