package config

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// filterKeys is the form of a filter.Rules in a file, and overrideKeys that of a filter.Override.
type filterKeys struct {
	Allow      []string                   `yaml:"allow,some"`
	Deny       []string                   `yaml:"deny"`
	Rename     map[string]string          `yaml:"rename"`
	Override   map[string]filter.Override `yaml:"override"`
	InlineRefs bool                       `yaml:"inline_refs"`
}

type overrideKeys struct {
	Title       string                     `yaml:"title"`
	Description string                     `yaml:"description"`
	Annotations map[string]json.RawMessage `yaml:"annotations"`
	Args        map[string]Argument        `yaml:"args"`
	Results     Results                    `yaml:"results"`
}

// argumentKeys is the form of an Argument in a file.
type argumentKeys struct {
	Value       strict.JSON `yaml:"value"`
	ValueFile   string      `yaml:"value_file"`
	Default     strict.JSON `yaml:"default"`
	As          string      `yaml:"as"`
	Description string      `yaml:"description"`
	Hide        bool        `yaml:"hide"`
}

// filter reads the rules for a server's tools, prompts or resources.
func (d *decoder) filter(s *strict.Slot, n *yaml.Node, into *filter.Rules) bool {
	var keys filterKeys
	_, ok := d.Inner(s, n, &keys)
	*into = filter.Rules(keys)
	return ok
}

// override reads the changes of one tool, prompt or resource.
func (d *decoder) override(s *strict.Slot, n *yaml.Node, into *filter.Override) bool {
	var keys overrideKeys
	sec, ok := d.Inner(s, n, &keys)
	if !ok {
		return false
	}
	if _, set := sec.Marks["title"]; set { // an empty title replaces the server's, but a missing one does not
		into.Title = &keys.Title
	}
	if _, set := sec.Marks["description"]; set {
		into.Description = &keys.Description
	}
	into.Annotations, into.Args, into.MaxResult = keys.Annotations, keys.Args, int64(keys.Results.Max)
	return true
}

// argumentChange reads the changes to an argument of a tool, which may be the word off. References to the caller stay.
func (d *decoder) argumentChange(s *strict.Slot, n *yaml.Node, into *Argument) bool {
	if into.Off = strict.IsOff(n); into.Off {
		return true
	}
	d.Later = func(reference string) bool { return len(arguments.References([]byte("${"+reference+"}"))) > 0 }
	defer func() { d.Later = nil }()
	var keys argumentKeys
	sec, ok := d.whole(s, n, &keys)
	if !ok {
		return false
	}
	*into = Argument{
		Off:     keys.Hide,
		Value:   json.RawMessage(keys.Value),
		Default: json.RawMessage(keys.Default),
		As:      keys.As,
		About:   keys.Description,
		File:    keys.ValueFile,
	}
	switch {
	case len(sec.Marks) == 0:
		d.Fault(s.Line, "%s%s changes nothing: set value, default, as, description or hide", s.Section.Where, s.Label)
		return false
	case into.File != "" && into.Value != nil:
		d.Fault(s.Line, "%svalue_file cannot be used with value: keep one", sec.Where)
		return false
	case into.File == "":
		return true
	}
	text := []byte("${caller.file}") // no caller has it, so nothing is sent until Load reads the file
	if d.dir != "" {
		var err error
		into.File = d.absolute(into.File)
		if text, err = readFile(into.File); err != nil {
			d.unusable(sec, "value_file", files.Reason(err))
			return false
		}
	}
	into.Value = json.RawMessage(rawjson.Quote(strings.TrimRight(string(text), "\r\n")))
	return true
}
