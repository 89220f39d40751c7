package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tidwall/jsonc"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

const schemaFile = "../docs/bridge.schema.json"

type object = map[string]any

// A schema is built from the structs of the decoder and the rows of the reference.
type schema struct {
	meanings map[reflect.Type]map[string]row
	defs     object
}

// TestSchema: the schema in docs matches the structs and the reference. go test -update writes it.
func TestSchema(t *testing.T) {
	text := referenceText(t)
	s := schema{map[reflect.Type]map[string]row{}, object{}}
	for _, table := range referenceTables {
		_, rows := referenceRows(t, text, table.heading)
		s.meanings[reflect.TypeOf(table.settings)] = rows
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(s.file()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s is not what the settings make (error %v): go test ./config -run TestSchema -update", schemaFile, err)
	}
}

// file returns the whole schema. It accepts any file of a desktop client.
func (s *schema) file() object {
	own := s.fields(reflect.TypeFor[Config]())
	own["required"] = []string{"servers"}
	foreign := object{"anyOf": []any{
		object{"required": []string{"mcpServers"}},
		object{"required": []string{"servers"}, "properties": object{"servers": object{"type": "object", "minProperties": 1, "additionalProperties": object{"type": "object", "required": []string{"type"}}}}},
	}}
	return object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "The configuration of mcp-bridge",
		"description": "Made of docs/configuration and the code. It knows which keys there are and what their values look like; mcp-bridge check knows all rules.",
		"type":        "object",
		"if":          foreign, "then": true, "else": own,
		"$defs": s.defs,
	}
}

// references matches a text with a variable, which may have any value.
var references = object{"type": "string", "pattern": `\$\{`}

func or(all ...any) object { return object{"anyOf": all} }

// words are the values of keys whose words no tag names, since their faults say more.
var words = map[string][]string{
	"transport": {remote.TransportAuto, remote.TransportStreamable, remote.TransportSSE},
	"exchange":  {oauth.ExchangeStandard, oauth.ExchangeOnBehalfOf},
	"revision":  era.Supported(),
}

// fields is the schema of a struct's keys.
func (s *schema) fields(t reflect.Type) object {
	properties := object{}
	for _, f := range setting.Fields(t) {
		key := f.Key
		if !f.Keyed() {
			continue
		}
		v := s.value(f.Type, f)
		s.describe(v, t, key)
		if f.Default.IsValid() && f.Usually == "" {
			v["default"] = setting.Show(f.Default)
			if k := f.Type.Kind(); k == reflect.Int || k == reflect.Bool {
				v["default"] = f.Default.Interface()
			}
		}
		properties[key] = v
	}
	for _, key := range (*decoder)(nil).OtherKeys(t) {
		v := or(object{"type": "boolean"}, references)
		s.describe(v, t, key)
		properties[key] = v
	}
	delete(properties, "mcpServers") // of foreign files
	all := object{"type": "object", "properties": properties, "additionalProperties": false}
	switch t {
	case reflect.TypeFor[stdio.Config]():
		all["required"] = []string{"command"}
	case reflect.TypeFor[remote.Config]():
		all["required"] = []string{"url"}
	case reflect.TypeFor[OAuth]():
		all["required"] = []string{"issuer"}
	case reflect.TypeFor[Introspection]():
		all["required"] = []string{"client"}
	case reflect.TypeFor[OAuthClient]():
		all["required"] = []string{"id", "secret"}
	case reflect.TypeFor[Access]():
		all["required"] = []string{"name"}
	case reflect.TypeFor[Server]():
		var kinds []any
		for _, kind := range kindKeys() {
			kinds = append(kinds, object{"required": []string{kind}})
		}
		all["oneOf"] = kinds
	}
	return all
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

func (s *schema) describe(v object, t reflect.Type, key string) {
	row, ok := s.meanings[t][key]
	if !ok {
		return
	}
	meaning := link.ReplaceAllString(row.meaning, "$1")
	meaning = strings.ReplaceAll(strings.ReplaceAll(meaning, "`", ""), `\|`, "|")
	if row.standard != "none" && row.standard != "required" && strings.HasPrefix(row.standard, "`") {
		meaning += " Default: " + strings.ReplaceAll(row.standard, "`", "") + "."
	}
	v["description"] = meaning
}

// ref is the schema of a struct, by its name.
func (s *schema) ref(t reflect.Type) object {
	name := strings.ToLower(t.String()) // such as stdio.config
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = true // for one that leads back to itself
		s.defs[name] = s.fields(t)
	}
	return object{"$ref": "#/$defs/" + name}
}

// value returns the schema of a value of a field.
func (s *schema) value(t reflect.Type, f *setting.Field) object {
	text := object{"type": "string"}
	switch t {
	case reflect.TypeFor[[]Server]():
		return object{"type": "object", "minProperties": 1, "additionalProperties": s.ref(reflect.TypeFor[Server]()), "propertyNames": object{"pattern": "^[a-z0-9][a-z0-9-]{0,63}$"}}
	case reflect.TypeFor[filter.Rules]():
		return s.ref(reflect.TypeFor[filterKeys]())
	case reflect.TypeFor[filter.Override]():
		return s.ref(reflect.TypeFor[overrideKeys]())
	case reflect.TypeFor[Argument]():
		return or(s.ref(reflect.TypeFor[argumentKeys]()), object{"enum": []any{"off", false}})
	case reflect.TypeFor[time.Duration]():
		pattern := `^([0-9]*\.?[0-9]+\.?(ns|us|µs|ms|s|m|h))+$|\$\{`
		if f.Form == "off" {
			pattern += "|^off$"
		}
		return object{"type": "string", "pattern": pattern}
	case reflect.TypeFor[Words]():
		return or(object{"type": "array", "items": s.loose(reflect.TypeFor[string]())}, s.loose(reflect.TypeFor[string]()))
	case reflect.TypeFor[netip.Prefix](), reflect.TypeFor[bridge.Forward](), reflect.TypeFor[limits.Rate]():
		return text
	case reflect.TypeFor[*stdio.Config](), reflect.TypeFor[*remote.Config]():
		return or(s.ref(t.Elem()), text)
	case reflect.TypeFor[rest.Limits](), reflect.TypeFor[rest.Catalog]():
		return s.ref(t)
	}
	if strings.HasPrefix(t.PkgPath(), reflect.TypeFor[rest.Config]().PkgPath()) && t.Kind() == reflect.Struct || f.Key == "openapi" {
		return object{} // of many forms
	}
	switch t.Kind() {
	case reflect.Bool:
		return or(object{"type": "boolean"}, references)
	case reflect.Int:
		return or(bounded(f, 1), references)
	case reflect.Int64:
		return or(bounded(f, 1<<10), object{"type": "string", "pattern": `^[0-9]+ *([kKmMgG][iI]?)?[bB]$|^[0-9]+$|\$\{`})
	case reflect.String:
		if values := append(words[f.Key], f.OneOf...); values != nil {
			return or(object{"enum": values}, references)
		} else if f.Text == "listen" {
			return object{"type": []string{"string", "integer"}}
		}
		return text
	case reflect.Pointer:
		return s.ref(t.Elem())
	case reflect.Struct:
		if _, ok := t.FieldByName("Off"); ok {
			return or(s.ref(t), object{"enum": []any{"off", false}})
		}
		return s.ref(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 || strings.HasPrefix(t.Elem().PkgPath(), reflect.TypeFor[rest.Config]().PkgPath()) {
			return object{}
		}
		list := object{"type": "array", "items": s.loose(t.Elem())}
		if f.Form == "some" || f.Key == "servers" {
			list["minItems"] = 1
		}
		return list
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.loose(t.Elem())}
	}
	panic("no schema for " + t.String())
}

// bounded is the schema of a whole number. least is the minimum of numbers without the tag min.
func bounded(f *setting.Field, least int64) object {
	number := object{"type": "integer", "minimum": least}
	if f.Min != nil {
		number["minimum"] = *f.Min
	}
	if f.Max != nil {
		number["maximum"] = *f.Max
	}
	return number
}

// loose returns the schema of an item of a list or a table, where text needs no quotes.
func (s *schema) loose(t reflect.Type) object {
	if t.Kind() == reflect.String {
		return object{"type": []string{"string", "number", "boolean"}}
	}
	return s.value(t, &setting.Field{})
}

// unseen are bad files whose faults no schema can find: rules about several keys, and contents of
// other files.
var unseen = []string{
	"cluster-advertise.bad.yaml", "cluster-apart.bad.yaml", "cluster-listen.bad.yaml", "cluster-secret.bad.yaml", "cluster-store.bad.yaml", "cluster-wildcard.bad.yaml",
	"workers-alone.bad.yaml", "workers-idle.bad.yaml",
	"files.bad.yaml", "front.bad.yaml", "front-url.bad.yaml", "front-keys.bad.yaml", "exchange-front.bad.yaml", "admin-alone.bad.yaml", "console-alone.bad.yaml", "console-listen.bad.yaml", "console-listen-open.bad.yaml", "viewers-alone.bad.yaml", "in-flight.bad.yaml", "introspection-cache.bad.yaml", "latin1.bad.yaml", "oauth-alone.bad.yaml", "oauth-hosts.bad.yaml", "oauth-metadata.bad.yaml", "oauth-missing.bad.yaml", "oauth-proxy.bad.yaml", "off.bad.yaml", "same-prefix.bad.yaml", "scopes-keys.bad.yaml", "scopes.bad.yaml", "tokens.bad.yaml", "useless.bad.yaml", "variables.bad.yaml",
	// Files of other programs, which the schema accepts.
	"desktop-left-out.bad.json", "desktop-none.bad.json", "desktop-remote.bad.json", "desktop.bad.json", "inputs.bad.jsonc", "lists.bad.json", "restrictions.bad.json",
}

// TestSchemaFiles: the schema accepts every good file, and refuses every bad one whose faults it can
// find.
func TestSchemaFiles(t *testing.T) {
	c := jsonschema.NewCompiler()
	compiled, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range filesOf(t, "testdata/*.[gb]*.[yj]*") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if strings.Contains(filepath.Ext(file), "json") {
			err = json.Unmarshal(jsonc.ToJSON(data), &value)
		} else if root, wrong := strict.Parse(data); wrong != nil || root == nil {
			err = errors.Join(wrong, errors.New("nothing to read"))
		} else if err = root.Decode(&value); err == nil {
			var raw []byte
			if raw, err = json.Marshal(value); err == nil {
				err = json.Unmarshal(raw, &value)
			}
		}
		if err != nil {
			if strings.Contains(file, ".good.") {
				t.Errorf("%s cannot be read: %v", file, err)
			}
			continue // not for a schema to say
		}
		wrong := compiled.Validate(value)
		base := filepath.Base(file)
		switch {
		case strings.Contains(file, ".good."):
			if wrong != nil {
				t.Errorf("%s is good, and the schema refuses it: %v", file, wrong)
			}
		case strings.HasPrefix(base, "rest-"): // of tools it knows little: they have many forms
		case (wrong == nil) != slices.Contains(unseen, base):
			t.Errorf("%s: the schema returns %v: is the file rightly in or out of the list unseen?", file, wrong)
		}
	}
}
