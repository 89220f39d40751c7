package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// finish sets the names of forwarded headers, and checks the rules about several keys of a server.
func (d *decoder) finish(sec *strict.Section, s *Server) {
	s.nameForwards()
	for _, b := range s.breaches() {
		d.breach(sec, b)
	}
	for _, b := range s.remarks() {
		m, _ := sec.At(b.key)
		d.Warn(m.Line, "%s%s %s", sec.Where, b.key, b.rule)
	}
}

// server reads the keys of a server, and adds the faults.
func (d *decoder) server(sec *strict.Section, name string, keys []strict.Entry) Server {
	s := DefaultServer(name, "")
	d.Fields(sec, keys, reflect.ValueOf(&s).Elem())
	if _, set := sec.Marks["idle_stop"]; !set {
		s.IdleStop = DefaultServer(name, s.Share).IdleStop
	}
	set := s.kinds()
	if len(set) > 1 {
		d.Fault(sec.Line, "%sis of more than one kind (%s): keep one", sec.Where, strings.Join(set, ", "))
		return s // other rules depend on the kind
	}
	tried := slices.ContainsFunc(kindKeys(), func(name string) bool { _, ok := sec.Marks[name]; return ok })
	switch {
	case len(set) == 1:
		d.finish(sec, &s)
	case !tried && !sec.Marks[""].Bad:
		d.Fault(sec.Line, "%snothing says how to reach it: add stdio: { command: …, args: […] } or http: { url: … }", sec.Where)
	}
	return s
}

// enabled returns the keys of a server without the key enabled, and whether the server is switched on.
func (d *decoder) enabled(sec *strict.Section, name string, keys []strict.Entry) (rest []strict.Entry, on bool) {
	i := slices.IndexFunc(keys, func(e strict.Entry) bool { return e.Key == "enabled" })
	if i < 0 {
		return keys, true
	}
	e, on := keys[i], true
	if d.Value(&strict.Slot{
		Section: sec,
		Label:   e.Key,
		Line:    e.Line,
	}, e.Value, reflect.ValueOf(&on).Elem()); !on {
		d.Warn(e.Line, "%snot served: enabled is false", sec.Where)
		d.off = append(d.off, name)
		return nil, false
	}
	return slices.Delete(slices.Clone(keys), i, i+1), true
}

// serverKeys returns the keys of a server. If it is not a mapping, serverKeys adds a fault with the expected form.
func (d *decoder) serverKeys(e strict.Entry, expected string) (sec *strict.Section, keys []strict.Entry, ok bool) {
	about := fmt.Sprintf("server %q", strict.Clip(e.Key))
	sec = &strict.Section{Where: about + ": ", Line: e.Line}
	if keys, ok = d.Entries(sec.Where, e.Value); !ok {
		d.Mistyped(&strict.Slot{
			Section: &strict.Section{},
			Label:   about,
			Line:    e.Line,
		}, e.Value, expected)
	}
	return sec, keys, ok
}

func (d *decoder) servers(s *strict.Slot, n *yaml.Node, into *[]Server) bool {
	if strict.Kind(n) == strict.Null {
		return true // the same as an empty mapping, which has a better message
	}
	list, ok := d.Entries("servers: ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping of names to servers")
	}
	for _, e := range list {
		if err := checkName(e.Key); err != nil {
			hint := ""
			if better := NameOf(e.Key); checkName(better) == nil {
				hint = fmt.Sprintf(": write %q", better)
			}
			d.Fault(e.Line, "server %q: %v%s", strict.Clip(e.Key), err, hint)
		}
		sec, keys, ok := d.serverKeys(e, "a mapping such as { stdio: { command: npx } }")
		if !ok {
			continue
		}
		keys, on := d.enabled(sec, e.Key, keys)
		if !on {
			continue
		}
		*into = append(*into, d.server(sec, e.Key, keys))
		d.sections = append(d.sections, sec)
	}
	if len(*into) == 0 && len(d.off) == len(list) && len(list) > 0 {
		d.Fault(s.Line, "no server is served: each has enabled: false")
	}
	return len(*into) > 0 || len(list) == 0
}
