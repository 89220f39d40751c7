package tree

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlTree makes nodes of YAML. Aliases share their nodes, so a document that multiplies itself
// costs no memory.
type yamlTree struct {
	file uint16
	warn func(line int32, text string)
	done map[*yaml.Node]*Node // the nodes of anchors; nil while in progress
	far  bool                 // a reference leaves the text
	left int                  // how many more members << may add
}

func parseYAML(src []byte, file uint16, warn func(int32, string)) (root *Node, far bool, err error) {
	// The library panics on some unexpected input.
	defer func() {
		if r := recover(); r != nil {
			root, far, err = nil, false, errors.New("cannot be read as YAML")
		}
	}()
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(src)))
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, false, errors.New("is empty")
	} else if err != nil {
		return nil, false, errors.New(Short(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, false, errors.New("is empty")
	}
	t := &yamlTree{file: file, warn: warn, done: map[*yaml.Node]*Node{}, left: 1 << 20}
	n := t.node(doc.Content[0], 0)
	return &n, t.far, nil
}

func (t *yamlTree) node(y *yaml.Node, depth int) Node {
	n := Node{Line: int32(min(y.Line, math.MaxInt32)), File: t.file}
	if depth > MaxDepth {
		t.warn(n.Line, fmt.Sprintf("nested deeper than %d levels: left out", MaxDepth))
		return n
	}
	if y.Kind == yaml.AliasNode {
		return t.alias(y, n)
	}
	if y.Anchor != "" {
		t.done[y] = nil
		defer func() { made := n; t.done[y] = &made }()
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.Kind = Array
		if len(y.Content) == 0 {
			return n
		}
		n.Kids = &Kids{list: make([]Member, len(y.Content))}
		for i, c := range y.Content {
			n.Kids.list[i].Node = t.node(c, depth+1)
		}
	case yaml.MappingNode:
		n.Kind = Object
		n.Kids = t.mapping(y, depth)
	case yaml.ScalarNode:
		n.Kind, n.Text = yamlScalar(y)
	}
	return n
}

// alias returns a copy of an alias's node, with the alias's own line.
func (t *yamlTree) alias(y *yaml.Node, n Node) Node {
	made, ok := t.done[y.Alias]
	if !ok || made == nil {
		t.warn(n.Line, fmt.Sprintf("*%s stands within what it stands for: left out", Short(y.Value)))
		return n
	}
	line := n.Line
	n = *made
	n.Line = line
	return n
}

func (t *yamlTree) mapping(y *yaml.Node, depth int) *Kids {
	list := make([]Member, 0, len(y.Content)/2)
	var merged []Member
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, v := y.Content[i], y.Content[i+1]
		if key.Tag == "!!merge" {
			m := t.merge(v, depth)
			if t.left -= len(m); t.left < 0 { // attempts count too
				t.left = 0
				t.warn(int32(key.Line), "<< brings too much: left out")
			} else {
				merged = append(merged, m...)
			}
			continue
		}
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			t.warn(int32(key.Line), "a name must be a plain value: left out")
			continue
		}
		m := Member{Name: strings.ToValidUTF8(key.Value, "�"), Node: t.node(v, depth+1)}
		m.Node.Line = int32(key.Line) // where readers look for it
		t.far = t.far || m.LeadsOut()
		list = append(list, m)
	}
	if len(merged) > 0 {
		own := make(map[string]bool, len(list))
		for i := range list {
			own[list[i].Name] = true
		}
		for _, m := range merged { // the first merged one wins, and own members win over all
			if !own[m.Name] {
				own[m.Name] = true
				list = append(list, m)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return newKids(list, func(m *Member) { t.warn(m.Node.Line, repeated(m.Name)) })
}

// merge returns the members that << adds.
func (t *yamlTree) merge(y *yaml.Node, depth int) []Member {
	n := t.node(y, depth+1)
	switch n.Kind {
	case Object:
		return n.Members()
	case Array:
		var out []Member
		for i := range n.Members() {
			if len(out) > t.left {
				break
			}
			if item := &n.Kids.list[i].Node; item.Kind == Object {
				out = append(out, item.Members()...)
			}
		}
		return out
	}
	return nil
}

// yamlScalar converts a plain value to JSON.
func yamlScalar(y *yaml.Node) (Kind, string) {
	switch y.ShortTag() {
	case "!!null":
		return Null, ""
	case "!!bool":
		return Boolean, strings.ToLower(y.Value)
	case "!!int", "!!float":
		if isNumber(y.Value) {
			return Number, y.Value
		}
		s := strings.ReplaceAll(strings.TrimPrefix(y.Value, "+"), "_", "")
		if i, err := strconv.ParseInt(s, 0, 64); err == nil {
			return Number, strconv.FormatInt(i, 10)
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return Number, strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	return Text, strings.ToValidUTF8(y.Value, "�")
}
