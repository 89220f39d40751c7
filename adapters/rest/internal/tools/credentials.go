package tools

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// place sets how the API of the document is reached. It leaves Reach nil if the settings are wrong.
func (s *Settings) place(m *Made) {
	m.api = s.API
	m.api.Document, m.api.CacheBytes = m.Document, s.cacheBytes()
	if m.misuse = placeKey(&m.api); m.misuse == nil {
		m.Reach, _ = wire.NewReach(&m.api) // wire.New reports the error
	}
}

// placeKey gives a Default with a Key without a place to the document's only scheme of type apiKey.
func placeKey(o *wire.Options) error {
	c := o.Default
	if c == nil || c.Key == "" || c.Header != "" || c.Query != "" || c.Cookie != "" {
		return nil
	}
	var keys []string
	if o.Document != nil {
		for _, s := range o.Document.Schemes {
			if s.Type == "apiKey" {
				keys = append(keys, s.Name)
			}
		}
	}
	switch len(keys) {
	case 0:
		return errors.New("auth: the value has no place: set header: NAME, query: NAME or cookie: NAME")
	case 1:
		schemes := map[string]wire.Credential{}
		maps.Copy(schemes, o.Credentials)
		schemes[keys[0]] = *c
		o.Credentials, o.Default = schemes, nil
		return nil
	}
	return fmt.Errorf("auth: the document has several API keys (%s): name the one that the value is for, such as auth: {%s: {value: …}}", strings.Join(keys, ", "), keys[0])
}

// secure lets an operation of the configuration use the credentials of the first scheme by name, or
// else the default.
func (m *Made) secure(op *openapi.Operation) {
	for _, name := range slices.Sorted(maps.Keys(m.api.Credentials)) {
		op.Security = append(op.Security, openapi.Requirement{{Name: name}})
	}
	// No scheme has an empty name, and an operation whose needs no scheme meets gets the default.
	op.Security = append(op.Security, openapi.Requirement{{Name: ""}})
}
