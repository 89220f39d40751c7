package imports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/tidwall/jsonc"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/foreign"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// MaxFile is the maximum size of a file in bytes. Some clients store much other data in the file.
const MaxFile = 16 << 20

// Import collects the servers of files.
type Import struct {
	// Only lists the names of the servers to import, as in the file or in the result. Empty means all servers.
	Only []string
	// Inline writes secrets instead of references.
	Inline bool
	// Notes list keys without a counterpart, omitted servers, and variables to set. They do not show secrets.
	Notes []string

	servers []server
	tokens  []access
	values  map[string]string // secrets, by the variable that replaces each
	inputs  map[string]string // descriptions, by variable
	rules   []rule
	into    *into // nil without Into
}

// maxBrackets bounds the nesting of TOML, which would otherwise overflow the parser's stack.
const maxBrackets = 100_000

type access struct {
	token   string
	servers []string
}

type object = map[string]any

// Add adds the servers of a file. from is the name of the file in notes. If the file has no servers in a known form,
// Add returns an error.
func (i *Import) Add(from string, data []byte) error {
	if i.values == nil {
		i.values, i.inputs = map[string]string{}, map[string]string{}
	}
	root, err := decode(data)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	found := tables(root)
	if _, agentgateway := root["binds"]; agentgateway && len(found) == 0 {
		return fmt.Errorf("%s: this looks like a file of agentgateway, which mcp-bridge does not read: name its servers under servers in a file of your own", from)
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: it has no servers in a known form", from)
	}
	inputs, _ := root["inputs"].([]any)
	for _, in := range inputs {
		if o, ok := in.(object); ok {
			i.inputs[variable(text(o["id"]))] = text(o["description"])
		}
	}
	gemini, proxy := ofGemini(from, root), orEmpty(root["mcpProxy"])
	for _, t := range found {
		t.tokens = texts(each(orEmpty(proxy["options"])["authTokens"], braced))
		switch {
		case gemini:
			t.spell, t.timeout = braced, time.Millisecond
		case len(proxy) > 0:
			t.spell = braced
		}
		t.servers = each(t.servers, spelled).(object)
		if t.spell != nil {
			t.servers = each(t.servers, t.spell).(object)
		}
		for _, name := range slices.Sorted(maps.Keys(t.servers)) {
			before := len(i.servers)
			if i.add(from, name, t); len(i.servers) > before {
				i.servers[before].unused(from, name, orEmpty(root["tools"]))
			}
		}
	}
	i.readRules(from, root)
	i.keep()
	return nil
}

// decode reads JSON (also with comments), YAML or TOML.
func decode(data []byte) (root object, err error) {
	if len(data) > MaxFile {
		return nil, errors.New("the file is too large")
	}
	data = []byte(strings.TrimPrefix(string(data), "\ufeff"))
	if json.Unmarshal(jsonc.ToJSON(data), &root) == nil && root != nil {
		return root, nil
	}
	if strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal(jsonc.ToJSON(data), &root))
	}
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= maxBrackets && toml.Unmarshal(data, &root) == nil && root != nil {
		return root, nil
	}
	file, err := strict.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("it is neither JSON nor TOML, and it is not valid YAML: %w", err)
	}
	if file != nil && file.Decode(&root) == nil && root != nil {
		return root, nil
	}
	return nil, errors.New("neither JSON nor YAML nor TOML with keys")
}

// tables returns the tables of servers in a file. A file of Claude Code has an additional table for each project.
func tables(root object) []table {
	var found []table
	for _, place := range foreign.Places {
		at := any(root)
		for _, key := range place.Path {
			o, _ := at.(object)
			at = o[key]
		}
		all := servers(at)
		if place.Program == "Docker's MCP gateway" {
			all = catalog(root)
		}
		if len(all) > 0 {
			found = append(found, table{servers: all})
			switch t := &found[len(found)-1]; {
			case place.Program == "Goose":
				t.timeout, t.goose = time.Second, true
			case place.Program == "Crush" && ofCrush(all):
				t.spell, t.timeout = shell, time.Second
			}
		}
	}
	projects, _ := root["projects"].(object)
	for _, path := range slices.Sorted(maps.Keys(projects)) {
		if p, ok := projects[path].(object); ok {
			if all := servers(p["mcpServers"]); len(all) > 0 {
				found = append(found, table{servers: all})
			}
		}
	}
	return found
}

// servers returns v as a table of servers: a mapping of names, or a list of servers with names. For anything else, it
// returns nil.
func servers(v any) object {
	table := object{}
	if list, ok := v.([]any); ok {
		for _, item := range list {
			if o, ok := item.(object); ok && text(o["name"]) != "" {
				table[text(o["name"])] = o
			}
		}
	} else if o, ok := v.(object); ok {
		table = o
	}
	reachable := func(v any) bool {
		o, _ := v.(object)
		return slices.ContainsFunc(slices.Concat(foreign.Aliases["command"], foreign.Aliases["url"]), func(key string) bool { return o[key] != nil })
	}
	for _, v := range table {
		if reachable(v) {
			return table
		}
	}
	return nil
}

// read are keys that have no counterpart, but that other code here reads.
var read = []string{
	"disabled", "enabled", "options", "headerToEnv", "env_http_headers", "bearer_token_env_var", "bearerToken", "bearer_token", "apiKey", "env_keys", "env_vars",
	"source", "bundled", "display_name", "requestOptions", "timeout", "tool_timeout_sec", "startup_timeout_sec",
}

// add adds one server.
func (i *Import) add(from, key string, t table) {
	name := config.NameOf(key)
	if len(i.Only) > 0 && !slices.Contains(i.Only, key) && !slices.Contains(i.Only, name) {
		return
	}
	s := server{name: name, from: from}
	o, ok := t.servers[key].(object)
	d, inCatalog := t.servers[key].(docked)
	if inCatalog {
		o, s.notes, s.needs, s.login = d.keys, d.notes, d.needs, d.login
	}
	switch {
	case !ok && !inCatalog:
		i.leave(key, from, "it is no mapping")
		return
	case d.why != "":
		i.leave(key, from, d.why)
		return
	case name == "":
		i.leave(key, from, "its name has no letter and no digit")
		return
	case i.into.has(name), slices.ContainsFunc(i.servers, func(other server) bool { return other.name == name }):
		i.leave(key, from, "there is one of this name already")
		return
	}
	if name != key {
		s.notes = append(s.notes, fmt.Sprintf("its name was %q", key))
	}
	before := i.state()
	why := i.fill(&s, o, t)
	if why == "" {
		why = s.check()
	}
	if why != "" {
		i.restore(before)
		i.leave(key, from, why)
		return
	}
	i.servers = append(i.servers, s)
}

func (i *Import) leave(key, from, why string) {
	i.Notes = append(i.Notes, fmt.Sprintf("%s: server %q is left out: %s", from, key, why))
}

type state struct {
	values map[string]string
	tokens []access
}

func (i *Import) state() state { return state{maps.Clone(i.values), slices.Clone(i.tokens)} }

func (i *Import) restore(s state) { i.values, i.tokens = s.values, s.tokens }

// fill reads the keys of a server. It returns the reason why the server cannot be imported, or "".
func (i *Import) fill(s *server, o object, t table) string {
	if old, ok := o["command"].(object); ok { // Zed, older: command: { path, args, env }
		o = maps.Clone(o)
		o["command"] = old["path"]
		for _, key := range []string{"args", "env"} {
			if old[key] != nil {
				o[key] = old[key]
			}
		}
	}
	get := func(what string) (v any) {
		for _, key := range foreign.Aliases[what] {
			if o[key] != nil {
				v = o[key]
			}
		}
		return v
	}
	words := texts(get("command"))
	words = append(words, texts(get("args"))...)
	if len(words) > 2 && strings.EqualFold(words[0], "cmd") && strings.EqualFold(words[1], "/c") {
		words = words[2:] // Windows needs no shell here
	}
	address := text(get("url"))
	if len(words) == 0 && address == "" {
		return "it has neither a command nor a url"
	}
	word := text(get("type"))
	var remote *bridged
	if address == "" {
		var stays string
		if remote, stays = bridgeOf(words, orEmpty(get("env"))); remote != nil {
			words, address, word = nil, remote.url, remote.kind
			s.notes = append(s.notes, remote.notes...)
		} else if stays != "" {
			s.notes = append(s.notes, stays)
		}
	}
	kind := foreign.TransportOf(word)
	switch {
	case slices.Contains([]string{"ws", "websocket", "builtin", "platform", "poci"}, strings.ToLower(word)):
		return "its type is " + word + ", which mcp-bridge does not speak"
	case len(words) > 0 && (address == "" || kind == "stdio"):
		s.kind = "stdio"
	case kind == "sse" || word == "" && config.EndsInSSE(address):
		s.kind = "sse"
	default:
		s.kind = "http"
	}
	if s.kind == "stdio" {
		s.command, s.args = i.reference(s, words[0]), i.arguments(s, words[1:])
		s.cwd, s.envFile = i.reference(s, text(get("cwd"))), i.reference(s, text(get("env_file")))
		s.env = i.table(s, get("env"), "")
		for _, name := range texts(o["env_keys"]) {
			s.env[name] = "${" + name + "}"
		}
		for _, v := range items(o["env_vars"]) {
			s.envPass = append(s.envPass, cmp.Or(text(v), text(orEmpty(v)["name"])))
		}
	} else {
		s.url = i.address(s, address)
		request, _ := o["requestOptions"].(object)
		s.headers = i.table(s, request["headers"], variable(s.name)+"_")
		headers := get("headers")
		if t.goose {
			headers = each(headers, braced)
		}
		maps.Copy(s.headers, i.table(s, headers, variable(s.name)+"_"))
		if remote != nil {
			maps.Copy(s.headers, i.remoteHeaders(s, remote))
		}
		for header, name := range object(orEmpty(o["env_http_headers"])) {
			s.headers[header] = "${" + text(name) + "}"
		}
		if name := text(o["bearer_token_env_var"]); name != "" {
			s.headers["Authorization"] = "Bearer ${" + name + "}"
		}
		for _, key := range []string{"bearerToken", "bearer_token", "apiKey"} {
			if token := text(o[key]); token != "" {
				maps.Copy(s.headers, i.table(s, object{"Authorization": "Bearer " + token}, variable(s.name)+"_"))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(request)) {
			if key != "headers" {
				s.notes = append(s.notes, "requestOptions: "+key+" is not taken over")
			}
		}
	}
	for _, name := range texts(o["env_keys"]) {
		s.need(name, "a secret that Goose keeps")
	}
	if s.why != "" {
		return s.why
	}
	if why := s.restrict(o); why != "" {
		return why
	}
	for header, name := range orEmpty(o["headerToEnv"]) {
		s.forward = append(s.forward, header+" as "+text(name))
	}
	slices.Sort(s.forward)
	s.waits(o, t.timeout)
	if why := s.options(orEmpty(o["options"]), &t.tokens); why != "" {
		return why
	}
	for _, token := range t.tokens {
		i.admit(s, token)
	}
	return s.others(o)
}

func orEmpty(v any) object { o, _ := v.(object); return o }

// waits reads the timeouts of calls and of the start. unit is the unit of the key timeout.
func (s *server) waits(o object, unit time.Duration) {
	for _, limit := range []struct {
		key  string
		unit time.Duration
		into *time.Duration
	}{{"timeout", unit, &s.timeout}, {"tool_timeout_sec", time.Second, &s.timeout}, {"startup_timeout_sec", time.Second, &s.handshake}} {
		switch v := o[limit.key]; {
		case empty(v):
		case limit.unit == 0:
			s.notes = append(s.notes, limit.key+" is not taken over, because programs disagree about its unit")
		default:
			d, ok := wait(v, limit.unit)
			if !ok {
				s.notes = append(s.notes, fmt.Sprintf("%s is not taken over: %s is no time to wait", limit.key, quoted(text(v))))
				continue
			}
			*limit.into = d
		}
	}
}

// restrict reads the allowed tools of a server, and whether the server is on.
func (s *server) restrict(o object) string {
	for _, key := range []string{"disabled", "enabled"} {
		on, ok := o[key].(bool)
		if o[key] != nil && !ok {
			return key + " is neither true nor false"
		}
		s.off = s.off || ok && on == (key == "disabled")
	}
	for _, key := range slices.Concat(foreign.Aliases["allow"], foreign.Aliases["deny"]) {
		if o[key] == nil || key == "available_tools" && empty(o[key]) { // in Goose, an empty list means all tools
			continue
		}
		if each, ok := o[key].(object); ok && key == "tools" {
			if why := s.single(each); why != "" {
				return why
			}
			continue
		}
		list, ok := names(o[key])
		if !ok {
			return key + " is no list of names"
		}
		if slices.Contains(foreign.Aliases["deny"], key) {
			s.deny = append(s.deny, list...)
		} else if why := s.permit(list); why != "" {
			return why
		}
	}
	return ""
}

// single reads settings of single tools, by name. It ignores whether the user is asked before a call, because the
// client in front of the bridge decides this.
func (s *server) single(tools object) string {
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		settings, ok := tools[name].(object)
		if !ok {
			return "tools is no list of names"
		}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			on, is := settings[key].(bool)
			switch {
			case is && (key == "enabled" || key == "disabled"):
				if on == (key == "disabled") {
					s.deny = append(s.deny, name)
				}
			case mayRestrict(key, settings[key]) && !asks(key):
				return "tools: " + name + ": " + key + " may be a restriction or a credential, and is not known here"
			case !empty(settings[key]):
				s.notes = append(s.notes, "tools: "+name+": "+key+" is not taken over")
			}
		}
	}
	return ""
}

// asks reports whether a key decides when the user of the client is asked before a call.
func asks(key string) bool { return strings.HasSuffix(similar.Fold(key), "approvalmode") }

func (s *server) permit(list []string) string {
	switch {
	case len(list) == 0:
		return "no tool of it is allowed"
	case s.allow != nil:
		return "two of its keys list the allowed tools"
	}
	s.allow = list
	return ""
}

// names returns a list of texts. For anything else, ok is false.
func names(v any) (all []string, ok bool) {
	list, ok := v.([]any)
	for _, item := range list {
		name, is := item.(string)
		all, ok = append(all, name), ok && is
	}
	return all, ok
}

// options reads the key options of TBXark's mcp-proxy.
func (s *server) options(o object, tokens *[]string) string {
	filter := orEmpty(o["toolFilter"])
	list, ok := names(filter["list"])
	switch mode := text(filter["mode"]); {
	case !ok && filter["list"] != nil:
		return "the list of toolFilter is no list of names"
	case mode == "allow" && len(list) > 0:
		if why := s.permit(list); why != "" {
			return why
		}
	case mode == "block":
		s.deny = append(s.deny, list...)
	case mode != "" || len(list) > 0:
		return "toolFilter is neither allow, with a list, nor block"
	}
	if off, ok := o["disabled"].(bool); o["disabled"] != nil && !ok {
		return "options: disabled is neither true nor false"
	} else if off {
		s.off = true
	}
	if own, ok := o["authTokens"].([]any); ok {
		*tokens = texts(own)
	}
	for key, v := range o {
		if !slices.Contains([]string{"toolFilter", "disabled", "authTokens", "panicIfInvalid", "logEnabled"}, key) {
			if mayRestrict(key, v) {
				return "options: " + key + " may restrict what clients can do, and is not known here"
			}
		}
	}
	return ""
}

// fetched maps keys by which a client fetches a credential to what the user must do instead.
var fetched = map[string]string{
	"oauth":            signIn,
	"oauth_resource":   signIn,
	"auth":             signIn,
	"authProviderType": signIn,
	"headersHelper":    "is a command that makes its headers: write the server yourself, with what the command prints under http: { url: …, headers: … }",
}

const signIn = "has another form here: write the server yourself, with http: { url: …, oauth: { login: true } }, and run mcp-bridge login NAME"

// others handles keys without a counterpart.
func (s *server) others(o object) string {
	known := slices.Concat(append(slices.Collect(maps.Values(foreign.Aliases)), read)...)
	for _, key := range slices.Sorted(maps.Keys(o)) {
		switch {
		case slices.Contains(known, key):
		case fetched[key] != "" && !empty(o[key]):
			return key + " " + fetched[key]
		case mayRestrict(key, o[key]) && !asks(key):
			return key + " may be a restriction or a credential, and is not known here"
		case empty(o[key]):
		default:
			s.notes = append(s.notes, key+" is not taken over")
		}
	}
	return ""
}

// mayRestrict reports whether an unknown key may restrict something.
func mayRestrict(key string, v any) bool {
	_, list := v.([]any)
	_, table := v.(object)
	return foreign.MayRestrict(key, empty(v), list || table)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case object:
		return len(v) == 0
	}
	return false
}

// text returns a scalar as text, or "" for anything else.
func text(v any) string {
	switch v := v.(type) {
	case nil, object, []any:
		return ""
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%f", v), ".000000")
	default:
		return fmt.Sprint(v)
	}
}

// texts returns a scalar or a list of scalars as texts.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		if s := text(v); s != "" {
			return []string{s}
		}
		return nil
	}
	var all []string
	for _, item := range list {
		all = append(all, text(item))
	}
	return all
}

var plainName = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// variable turns any text into a name for a variable.
func variable(s string) string {
	name := strings.ToUpper(regexp.MustCompile(`\W+`).ReplaceAllString(s, "_"))
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

// address returns a URL with references instead of the secrets in its query.
func (i *Import) address(s *server, address string) string {
	address, fragment, marked := strings.Cut(i.reference(s, address), "#")
	before, query, asked := strings.Cut(address, "?")
	parts := strings.Split(query, "&")
	for count, part := range parts {
		if name, value, _ := strings.Cut(part, "="); looksSecret(name, value) {
			parts[count] = name + "=" + i.secret(s, variable(s.name+"_"+name), value)
		}
	}
	if asked {
		before += "?" + strings.Join(parts, "&")
	}
	if marked {
		before += "#" + fragment
	}
	return before
}
