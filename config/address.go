package config

import (
	"reflect"
	"slices"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// LoadAddress reads only where the bridge of the file at path listens: Listen, ConsoleListen, BasePath and the
// certificate of TLS. The other keys may need secrets that only the bridge has, so it ignores them. For env and the
// error see Load.
func LoadAddress(path string, env func(string) (string, bool)) (*Config, error) {
	d, data, err := open(path, env)
	if err != nil {
		return nil, err
	}
	c := Default()
	only := func(where string, list []strict.Entry, v any, keys ...string) {
		list = slices.DeleteFunc(list, func(e strict.Entry) bool { return !slices.Contains(keys, e.Key) })
		d.Fields(&strict.Section{Where: where}, list, reflect.ValueOf(v).Elem())
	}
	if root, ok := d.Tree(data); ok && root != nil {
		list, _ := d.Entries("", root)
		for _, e := range list {
			if e.Key == "tls" {
				own, _ := d.Entries("tls: ", e.Value)
				only("tls: ", own, &c.TLS, "cert_file")
			}
		}
		only("", list, &c, "listen", "console_listen", "base_path")
	}
	if len(d.Faults) > 0 {
		return nil, d.Faults.Sorted()
	}
	if c.TLS.CertFile != "" {
		c.TLS.CertFile = d.absolute(c.TLS.CertFile)
	}
	return &c, nil
}
