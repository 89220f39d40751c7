package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// oneOf has the values of the keys that have only some, "" where that is the default.
var oneOf = map[string][]string{
	"share":      {ShareSession, SharePrincipal, ShareCall, ShareAll},
	"era":        {EraAuto, EraLegacy, EraModern},
	"offer":      {OfferAll, OfferLegacy, ""},
	"ready":      {ReadyAny, ReadyAll},
	"reload":     {ReloadOn, ReloadOff},
	"log_level":  {LogDebug, LogInfo, LogWarn, LogError},
	"console":    {ConsoleOn, ConsolePayloads, ConsoleOff, ""},
	"place":      {PlaceHere, PlaceWorkers},
	"role":       {cluster.RoleAll, cluster.RoleFront, cluster.RoleWorker},
	"store_lost": {StoreLostServe, StoreLostStop},
	"replay":     {ReplayOn, ReplayOff},
}

// rule checks a value of Config, Cluster or Server beyond its type, and returns it in its
// normal form; for a list it checks one item. Errors say only the rule, because
// the value may be a secret.
func rule(key string, value any) (any, error) {
	if words := oneOf[key]; words != nil && !slices.Contains(words, value.(string)) {
		words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
		last := len(words) - 1
		return nil, fmt.Errorf("must be %s or %s", strings.Join(words[:last], ", "), words[last])
	}
	switch key {
	case "listen", "console_listen":
		at := Address(value.(string))
		if key != "listen" && at == "" {
			return at, nil
		}
		return at, address.CheckListen(at)
	case "base_path":
		return address.BasePath(value.(string))
	case "public_url":
		return value, checkPublicURL(value.(string))
	case "allowed_origins":
		return address.Origin(value.(string))
	case "allowed_hosts":
		return address.Host(value.(string))
	case "revision":
		if s := value.(string); s != "" && !slices.Contains(era.Supported(), s) {
			return nil, errors.New("must be one of " + strings.Join(era.Supported(), ", "))
		}
	case "separator":
		if !isPlain(value.(string), 8) {
			return nil, errors.New("must be 1 to 8 letters, digits, '_', '.' and '-': it becomes a part of the names of tools")
		}
	case "key_prefix":
		if !isPlain(value.(string), 64) {
			return nil, errors.New("must be 1 to 64 letters, digits, '_', '.' and '-'")
		}
	case "lease":
		if d := value.(time.Duration); d < 3*time.Second || d > time.Minute {
			return nil, errors.New("must be 3s to 1m")
		}
	case "prefix":
		if s := value.(string); s != "" && !isPlain(s, len(s)) {
			return nil, errors.New("must consist of letters, digits, '_', '.' and '-': it becomes a part of the names of tools")
		}
	case "forward":
		return checkForward(value.(bridge.Forward))
	case "drain", "idle_stop":
		if value.(time.Duration) < 0 {
			return nil, errors.New("must not be negative")
		}
	case "ping":
		if v := value.(time.Duration); v != 0 && v < time.Second {
			return nil, errors.New("must be at least 1s: each quiet connection is asked that often")
		}
	case "restart_max_pause":
		if value.(time.Duration) < time.Second {
			return nil, errors.New("must be at least 1s, which is the first pause")
		}
	}
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
		if v <= 0 && !slices.Contains([]string{"drain", "idle_stop", "ping"}, key) {
			return nil, errors.New("must be longer than 0")
		}
	}
	return value, nil
}

// Address returns the address that a text stands for: a port alone, such as 8808,
// is one of this machine, so what other machines can reach has to be asked for. Any
// other text is returned as it is. :8808 is port 8808 on every network.
func Address(listen string) string { return address.Listen(listen) }

// Loopback reports whether a listen address can only be reached from this
// machine. An empty host means every address, which is not.
func Loopback(listen string) bool { return address.Loopback(listen) }

// Open reports whether others than programs of this machine can reach the
// address, and may use everything.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

// OperatorsListen is the address of the page and the API for operators.
func (c *Config) OperatorsListen() string { return cmp.Or(c.ConsoleListen, c.Listen) }

// checkName states the rule for server names when name breaks it.
func checkName(name string) error {
	if name == "" || len(name) > 64 || name[0] == '-' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return errors.New("a server's name has 1 to 64 lower-case letters, digits and '-', and begins with a letter or a digit")
	}
	if isReserved(name) {
		return errors.New("this name is reserved, because the bridge uses it in its own URLs: choose another one")
	}
	return nil
}

func isReserved(name string) bool {
	return slices.Contains([]string{"mcp", "sse", "messages", "hooks", "ui", "healthz", "readyz", "metrics"}, name)
}

// A breach is a rule that a key breaks, by itself or together with another one.
type breach struct{ key, other, rule string }

// breaches are all that something breaks.
type breaches []breach

// add adds a rule that a key breaks by itself.
func (b *breaches) add(key, format string, args ...any) {
	b.with(key, "", fmt.Sprintf(format, args...))
}

// with adds a rule that a key breaks together with another one.
func (b *breaches) with(key, other, rule string) { *b = append(*b, breach{key, other, rule}) }

func (c *Config) breaches() (all breaches) {
	if c.MaxInFlight < c.MaxMessage {
		all.with("max_message", "max_bytes_in_flight", "must not be larger than max_bytes_in_flight: such a message could never pass")
	}
	c.Cluster.check(&all, c.Listen, slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Place == PlaceWorkers }))
	c.checkOAuth(&all)
	c.checkAccess(&all)
	return all
}

// among are the rules for a server that depend on the rest of the configuration. owners
// has the servers before it that were asked for, by prefix.
func (c *Config) among(s *Server, owners map[string]string) (all breaches) {
	if owner, taken := owners[s.Prefix]; taken && owner != s.Name {
		all.add("prefix", "is that of server %q too: choose another one, since calls could not be told apart", owner)
	} else if s.Prefix != "" {
		owners[s.Prefix] = s.Name
	}
	c.checkIdentity(&all, s)
	switch {
	case s.Place != PlaceWorkers:
	case s.Stdio == nil:
		all.add("place", "cannot be workers for a server without a process: leave it out, since only stdio has one that could run elsewhere")
	case !c.Cluster.Enabled():
		all.add("place", "is workers, but there are none without cluster: add cluster, or leave place out")
	}
	return all
}

// maxPrefix leaves room for a name: some clients take no more than 64 characters.
const maxPrefix = 40

func (s *Server) breaches() (all breaches) {
	if s.MaxTimeout < s.Timeout {
		all.with("timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set")
	}
	// The default may be longer: a long name is no fault of a server that is
	// never offered together with others.
	if rest, own := strings.CutPrefix(s.Prefix, s.Name); len(s.Prefix) > maxPrefix && (!own || len(rest) > 8) {
		all.add("prefix", "must not be longer than %d characters", maxPrefix)
	}
	switch modern := era.IsModern(s.Revision); {
	case (s.SSE != nil || s.HTTP != nil && s.HTTP.Transport == remote.TransportSSE) && (modern || s.Era == EraModern):
		all.with("era", "revision", "is not spoken over HTTP+SSE: use http in place of sse, or leave it out")
	case modern && s.Era == EraLegacy, s.Revision != "" && !modern && s.Era == EraModern:
		all.with("revision", "era", "is not one of the era that is set: leave one of the two out")
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
func kindKeys() []string {
	var all []string
	for f := range reflect.TypeFor[Server]().Fields() {
		if f.Type.Kind() == reflect.Pointer {
			all = append(all, strict.Key(f))
		}
	}
	return all
}

// kinds returns the names of the kinds that are set.
func (s *Server) kinds() []string {
	var set []string
	if s.Adapter != nil {
		set = append(set, "Adapter")
	}
	v := reflect.ValueOf(s).Elem()
	for f, field := range v.Fields() {
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			set = append(set, strict.Key(f))
		}
	}
	return set
}

// Validate checks settings that were made by a program, or changed after Load, by
// the rules of the file. It only looks, and reports every fault.
func (c *Config) Validate() error {
	errs := check("", reflect.ValueOf(c).Elem())
	for _, b := range c.breaches() {
		errs = append(errs, fmt.Errorf("%s %s", b.key, b.rule))
	}
	if c.Cluster.Enabled() {
		for key, value := range map[string]any{"lease": c.Cluster.Lease, "key_prefix": c.Cluster.KeyPrefix, "store_lost": c.Cluster.StoreLost, "role": c.Cluster.Role, "replay": c.Cluster.Replay} {
			if _, err := rule(key, value); err != nil {
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
		for _, b := range append(s.breaches(), c.among(s, owners)...) {
			errs = append(errs, fmt.Errorf("%s%s %s", where, b.key, b.rule))
		}
	}
	return errors.Join(errs...)
}

// check applies the rules to every field of Config or Server, and asks the kinds.
func check(where string, v reflect.Value) []error {
	var errs []error
	for f, field := range v.Fields() {
		name := strict.Key(f)
		if !f.IsExported() {
			continue
		}
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
			if _, err := rule(name, value.Interface()); err != nil {
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
