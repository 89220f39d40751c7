package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
	"github.com/mcp-bridge/bridge/internal/era"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// rule checks a value of Config or Server beyond its type, and returns it in its
// normal form; for a list it checks one item. Errors say only the rule, because
// the value may be a secret.
func rule(key string, value any) (any, error) {
	if err := clusterRule(key, value); err != nil {
		return nil, err
	}
	switch key {
	case "listen":
		address := Address(value.(string))
		return address, checkListen(address)
	case "base_path":
		return basePath(value.(string))
	case "public_url":
		return value, checkPublicURL(value.(string))
	case "allowed_origins":
		return origin(value.(string))
	case "allowed_hosts":
		return hostName(value.(string))
	case "share":
		if !slices.Contains([]string{ShareSession, SharePrincipal, ShareCall, ShareAll}, value.(string)) {
			return nil, errors.New("must be session, principal, call or all")
		}
	case "era":
		if !slices.Contains([]string{EraAuto, EraLegacy, EraModern}, value.(string)) {
			return nil, errors.New("must be auto, legacy or modern")
		}
	case "offer":
		if s := value.(string); s != "" && s != OfferAll && s != OfferLegacy {
			return nil, errors.New("must be all or legacy")
		}
	case "revision":
		if s := value.(string); s != "" && !slices.Contains(era.Supported(), s) {
			return nil, errors.New("must be one of " + strings.Join(era.Supported(), ", "))
		}
	case "ready":
		if !slices.Contains([]string{ReadyAny, ReadyAll}, value.(string)) {
			return nil, errors.New("must be any or all")
		}
	case "reload":
		if !slices.Contains([]string{ReloadOn, ReloadOff}, value.(string)) {
			return nil, errors.New("must be on or off")
		}
	case "log_level":
		if !slices.Contains([]string{LogDebug, LogInfo, LogWarn, LogError}, value.(string)) {
			return nil, errors.New("must be debug, info, warn or error")
		}
	case "console":
		if s := value.(string); s != "" && s != ConsoleOn && s != ConsoleOff {
			return nil, errors.New("must be on or off")
		}
	case "separator":
		if !isPlain(value.(string), 8) {
			return nil, errors.New("must be 1 to 8 letters, digits, '_', '.' and '-': it becomes a part of the names of tools")
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
func Address(listen string) string {
	if _, err := strconv.ParseUint(listen, 10, 16); err == nil {
		return net.JoinHostPort("127.0.0.1", listen)
	}
	return listen
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return errors.New("expected HOST:PORT, such as 127.0.0.1:8808, or a port alone, which is one of this machine")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535; 0 picks a free one")
	}
	return nil
}

// Loopback reports whether a listen address can only be reached from this
// machine. An empty host means every address, which is not.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(Address(listen))
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// Open reports whether others than programs of this machine can reach the
// address, and may use everything.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

func basePath(s string) (any, error) {
	trimmed := strings.TrimSuffix(s, "/")
	u, err := url.Parse(trimmed)
	switch {
	case trimmed == "":
		return "", nil
	case trimmed[0] != '/':
		return nil, errors.New("must begin with a slash, such as /tools")
	case err != nil || u.Path != trimmed || path.Clean(trimmed) != trimmed || u.EscapedPath() != trimmed:
		return nil, errors.New("must be a plain path such as /tools or /a/b, without query, dots, spaces or %")
	}
	return trimmed, nil
}

// origin returns an origin as a browser sends it: in lower case and without the
// scheme's own port.
func origin(s string) (any, error) {
	switch s {
	case "*":
		return nil, errors.New(`"*" would let every website that a user visits call these servers: list the origins`)
	case "null":
		return nil, errors.New(`"null" is the origin of any sandboxed page or local file: it cannot be allowed`)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || !isHost(u.Host) {
		return nil, errors.New("expected SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com")
	}
	if s != s[:len(u.Scheme)]+"://"+u.Host {
		return nil, errors.New("expected nothing but SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com, without a slash at its end")
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; port != "" {
		host = strings.TrimSuffix(host, port)
	}
	return scheme + "://" + host, nil
}

func hostName(s string) (any, error) {
	if s == "*" {
		return nil, errors.New(`"*" would switch the check of the Host header off: list the names`)
	}
	if !isHost(s) {
		return nil, errors.New("expected a name or an address, with or without a port, such as mcp.example.com")
	}
	return strings.ToLower(s), nil
}

// isHost reports whether s can stand in a Host header. Names in other scripts
// arrive there in their ASCII form, so that is the form to write.
func isHost(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		host = h
		if strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && a.Is6() && strings.HasSuffix(inner, "]")
	}
	for _, r := range host {
		if !strings.ContainsRune("-._", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return host != ""
}

// checkName states the rule for server names when name breaks it.
func checkName(name string) error {
	ok := name != "" && len(name) <= 64 && name[0] != '-'
	for _, r := range name {
		ok = ok && (r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z')
	}
	if !ok {
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

// A breach is a rule that a key breaks together with another one.
type breach struct{ key, other, rule string }

func (c *Config) breaches() []breach {
	var all []breach
	if c.MaxInFlight < c.MaxMessage {
		all = append(all, breach{"max_message", "max_bytes_in_flight", "must not be larger than max_bytes_in_flight: such a message could never pass"})
	}
	all = append(all, c.Cluster.breaches(c.Listen)...)
	all = append(all, c.oauthBreaches()...)
	return append(all, c.accessBreaches()...)
}

// samePrefix reports that an earlier server has the prefix of the i-th.
func (c *Config) samePrefix(i int) (b breach, broken bool) {
	s := &c.Servers[i]
	for j := range i {
		if other := &c.Servers[j]; s.Prefix != "" && s.Prefix == other.Prefix && s.Name != other.Name {
			return breach{"prefix", "", fmt.Sprintf("is that of server %q too: choose another one, since calls could not be told apart", other.Name)}, true
		}
	}
	return breach{}, false
}

// maxPrefix leaves room for a name: some clients take no more than 64 characters.
const maxPrefix = 40

func (s *Server) breaches() []breach {
	var all []breach
	if s.MaxTimeout < s.Timeout {
		all = append(all, breach{"timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set"})
	}
	// The default may be longer: a long name is no fault of a server that is
	// never offered together with others.
	if rest, own := strings.CutPrefix(s.Prefix, s.Name); len(s.Prefix) > maxPrefix && (!own || len(rest) > 8) {
		all = append(all, breach{"prefix", "", fmt.Sprintf("must not be longer than %d characters", maxPrefix)})
	}
	switch modern := era.IsModern(s.Revision); {
	case (s.SSE != nil || s.HTTP != nil && s.HTTP.Transport == httpclient.TransportSSE) && (modern || s.Era == EraModern):
		all = append(all, breach{"era", "revision", "is not spoken over HTTP+SSE: use http in place of sse, or leave it out"})
	case modern && s.Era == EraLegacy, s.Revision != "" && !modern && s.Era == EraModern:
		all = append(all, breach{"revision", "era", "is not one of the era that is set: leave one of the two out"})
	}
	all = append(all, s.forwardBreaches()...)
	all = append(all, filterBreaches("tools", s.Tools)...)
	all = append(all, filterBreaches("prompts", s.Prompts)...)
	all = append(all, filterBreaches("resources", s.Resources)...)
	all = append(all, s.restBreaches()...)
	return append(all, s.remoteBreaches()...)
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
		for key, value := range map[string]any{"lease": c.Cluster.Lease, "key_prefix": c.Cluster.KeyPrefix, "store_lost": c.Cluster.StoreLost, "replay": c.Cluster.Replay} {
			if err := clusterRule(key, value); err != nil {
				errs = append(errs, fmt.Errorf("cluster: %s %w", key, err))
			}
		}
	}
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("there are no servers"))
	}
	names := map[string]bool{}
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
		broken := s.breaches()
		if b, same := c.samePrefix(i); same {
			broken = append(broken, b)
		}
		for _, b := range append(broken, c.identityBreaches(i)...) {
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
