package tree

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// yamlTree converts YAML into nodes. Aliases share their nodes, so that they cost no memory, however
// often they multiply a value.
type yamlTree struct {
	file uint16
	warn func(line int32, text string)
	done map[*yaml.Node]*Node // the nodes of anchors; nil while in progress
	far  bool                 // a reference points to another text
	left int                  // members that merge keys (<<) may still add
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
	} else if e := (*yaml.LoadError)(nil); errors.As(err, &e) && e.Mark.Line > 0 {
		last := 1 + strings.Count(strings.TrimSuffix(string(src), "\n"), "\n") // the end has a line of its own for the library
		return nil, false, errors.New(Short(fmt.Sprintf("line %d: %s", min(e.Mark.Line, last), e.Message)))
	} else if err != nil {
		return nil, false, errors.New(Short(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, false, errors.New("is empty")
	}
	y := &yamlTree{
		file: file,
		warn: warn,
		done: map[*yaml.Node]*Node{},
		left: 1 << 20,
	}
	n := y.node(doc.Content[0], 0)
	return &n, y.far, nil
}

func (y *yamlTree) node(one *yaml.Node, depth int) Node {
	n := Node{Line: int32(min(one.Line, math.MaxInt32)), File: y.file}
	if depth > MaxDepth {
		y.warn(n.Line, fmt.Sprintf("nested deeper than %d levels: left out", MaxDepth))
		return n
	}
	if one.Kind == yaml.AliasNode {
		return y.alias(one, n)
	}
	if one.Anchor != "" {
		y.done[one] = nil
		defer func() { made := n; y.done[one] = &made }()
	}
	switch one.Kind {
	case yaml.SequenceNode:
		n.Kind = Array
		if len(one.Content) == 0 {
			return n
		}
		n.Kids = &Kids{list: make([]Member, len(one.Content))}
		for i, c := range one.Content {
			n.Kids.list[i].Node = y.node(c, depth+1)
		}
	case yaml.MappingNode:
		n.Kind = Object
		n.Kids = y.mapping(one, depth)
	case yaml.ScalarNode:
		if n.Kind, n.Text = yamlScalar(one); (n.Kind == Number || n.Kind == Boolean) && n.Text != one.Value {
			n.Kids = &Kids{said: one.Value}
		}
	}
	return n
}

// alias returns a copy of an alias's node, with the alias's own line.
func (y *yamlTree) alias(node *yaml.Node, n Node) Node {
	made, ok := y.done[node.Alias]
	if !ok || made == nil {
		y.warn(n.Line, fmt.Sprintf("*%s stands within what it stands for: left out", Short(node.Value)))
		return n
	}
	line := n.Line
	n = *made
	n.Line = line
	return n
}

func (y *yamlTree) mapping(one *yaml.Node, depth int) *Kids {
	list := make([]Member, 0, len(one.Content)/2)
	var merged []Member
	for i := 0; i+1 < len(one.Content); i += 2 {
		key, v := one.Content[i], one.Content[i+1]
		if key.Tag == "!!merge" {
			m := y.merge(v, depth)
			if y.left -= len(m); y.left < 0 { // members that are not merged count as well
				y.left = 0
				y.warn(int32(key.Line), "<< brings too much: left out")
			} else {
				merged = append(merged, m...)
			}
			continue
		}
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			y.warn(int32(key.Line), "a name must be a plain value: left out")
			continue
		}
		m := Member{Name: strings.ToValidUTF8(key.Value, "�"), Node: y.node(v, depth+1)}
		m.Node.Line = int32(key.Line) // where people look for the member
		y.far = y.far || m.LeadsOut()
		list = append(list, m)
	}
	if len(merged) > 0 {
		own := make(map[string]bool, len(list))
		for i := range list {
			own[list[i].Name] = true
		}
		for _, m := range merged { // own members win, then the first merged member of a name
			if !own[m.Name] {
				own[m.Name] = true
				list = append(list, m)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return newKids(list, func(m *Member) { y.warn(m.Node.Line, repeated(m.Name)) })
}

// merge returns the members that << adds.
func (y *yamlTree) merge(one *yaml.Node, depth int) []Member {
	n := y.node(one, depth+1)
	switch n.Kind {
	case Object:
		return n.Members()
	case Array:
		var out []Member
		for i := range n.Members() {
			if len(out) > y.left {
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

// yamlScalar returns the kind and the text, as in JSON, of a scalar.
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
