package overlay

import (
	"fmt"
	"strconv"

	"github.com/theory/jsonpath/spec"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// maxNodes bounds the values of a document to search, which YAML aliases can multiply.
const maxNodes = 1 << 24

// Apply applies the actions in order and returns the changed document. It calls warn for targets
// that select nothing. The error says which action cannot be applied.
func (o *Overlay) Apply(root *tree.Node, warn func(line int, text string)) (*tree.Node, error) {
	plain := map[*tree.Kids]any{}
	for i := range o.actions {
		a := &o.actions[i]
		if count(root, map[*tree.Kids]int{}) > maxNodes {
			return nil, fmt.Errorf("%s:%d: the document has more than %d values, which is the limit with overlays", o.Name, a.line, maxNodes)
		}
		marks := &marked{}
		found := 0
		for _, at := range a.target.SelectLocated(plainOf(root, plain)) {
			marks.add(at.Path)
			found++
		}
		if found == 0 {
			warn(a.line, fmt.Sprintf("target %s selects nothing", tree.Short(a.text)))
			continue
		}
		changed, left, err := a.apply(root, marks)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: target %s: %w", o.Name, a.line, tree.Short(a.text), err)
		case !left:
			return nil, fmt.Errorf("%s:%d: target %s: the whole document would be removed", o.Name, a.line, tree.Short(a.text))
		}
		root = changed
	}
	return root, nil
}

// count returns how many values a document has, with aliases expanded.
func count(n *tree.Node, known map[*tree.Kids]int) int {
	if n.Kids == nil {
		return 1
	}
	if known[n.Kids] == 0 {
		all := 1
		for i := range n.Members() {
			all = min(all+count(&n.Members()[i].Node, known), maxNodes+1)
		}
		known[n.Kids] = all
	}
	return known[n.Kids]
}

// plainOf converts a value for the JSONPath library. Parts that aliases share stay shared.
func plainOf(n *tree.Node, made map[*tree.Kids]any) any {
	switch n.Kind {
	case tree.Null:
		return nil
	case tree.Boolean:
		return n.Text == "true"
	case tree.Number:
		if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(n.Text, 64) // infinite if too large
		return f
	case tree.Text:
		return n.Text
	}
	if out, ok := made[n.Kids]; ok && n.Kids != nil {
		return out
	}
	var out any
	if n.Kind == tree.Object {
		all := make(map[string]any, len(n.Members()))
		for i := range n.Members() {
			all[n.Members()[i].Name] = plainOf(&n.Members()[i].Node, made)
		}
		out = all
	} else {
		all := make([]any, len(n.Members()))
		for i := range n.Members() {
			all[i] = plainOf(&n.Members()[i].Node, made)
		}
		out = all
	}
	if n.Kids != nil {
		made[n.Kids] = out
	}
	return out
}

// marked says which nodes are selected within a value.
type marked struct {
	here  bool // the value itself is selected
	names map[string]*marked
	items map[int]*marked
}

func (m *marked) add(path spec.NormalizedPath) {
	for _, step := range path {
		var next *marked
		switch step := step.(type) {
		case spec.Name:
			if m.names == nil {
				m.names = map[string]*marked{}
			}
			if next = m.names[string(step)]; next == nil {
				next = &marked{}
				m.names[string(step)] = next
			}
		case spec.Index:
			if m.items == nil {
				m.items = map[int]*marked{}
			}
			if next = m.items[int(step)]; next == nil {
				next = &marked{}
				m.items[int(step)] = next
			}
		}
		m = next
	}
	m.here = true
}

// apply returns a value with its marked nodes changed. left is false if the value itself is removed.
func (a *action) apply(n *tree.Node, m *marked) (out *tree.Node, left bool, err error) {
	if m.here && a.remove {
		return nil, false, nil
	}
	if len(m.names) > 0 || len(m.items) > 0 {
		list := make([]tree.Member, 0, len(n.Members()))
		for i, one := range n.Members() {
			within := m.names[one.Name]
			if n.Kind == tree.Array {
				within = m.items[i]
			}
			if within != nil {
				changed, left, err := a.apply(&one.Node, within)
				if err != nil {
					return nil, false, err
				}
				if !left {
					continue
				}
				one.Node = *changed
			}
			list = append(list, one)
		}
		n = with(n, list)
	}
	if !m.here {
		return n, true, nil
	}
	out, err = merged(n, a.update, true)
	return out, true, err
}

// with returns a list or an object like n, at the same position, with the members in list.
func with(n *tree.Node, list []tree.Member) *tree.Node {
	if n.Kind == tree.Array {
		return n.Array(list)
	}
	return n.Object(list)
}

// merged returns a value with an update merged in: objects member by member, lists by appending. Any
// other update replaces the value or, if the value is the target itself, is an error.
func merged(n, update *tree.Node, target bool) (*tree.Node, error) {
	list := n.Members()
	list = append(make([]tree.Member, 0, len(list)+1), list...)
	switch {
	case n.Kind == tree.Array && update.Kind == tree.Array:
		return n.Array(append(list, placed(update, n).Members()...)), nil
	case n.Kind == tree.Array && target:
		return n.Array(append(list, tree.Member{Node: *placed(update, n)})), nil
	case n.Kind == tree.Object && update.Kind == tree.Object:
		at := map[string]int{}
		for i := range list {
			at[list[i].Name] = i
		}
		for _, m := range update.Members() {
			i, has := at[m.Name]
			if !has {
				list = append(list, tree.Member{Name: m.Name, Node: *placed(&m.Node, n)})
				continue
			}
			inner, err := merged(&list[i].Node, &m.Node, false)
			if err != nil {
				return nil, err
			}
			list[i].Node = *inner
		}
		return n.Object(list), nil
	case !target:
		return placed(update, n), nil
	case n.Kind == tree.Object:
		return nil, fmt.Errorf("it selects an object, and update is %s", update.Kind)
	}
	return nil, fmt.Errorf("it selects %s, but an update is for objects and lists: select the value that contains it", n.Kind)
}

// placed returns a copy of an overlay's value with the position of n.
func placed(update, n *tree.Node) *tree.Node {
	if update.Kind != tree.Array && update.Kind != tree.Object {
		return &tree.Node{
			Line: n.Line,
			File: n.File,
			Kind: update.Kind,
			Text: update.Text,
		}
	}
	list := make([]tree.Member, 0, len(update.Members()))
	for _, m := range update.Members() {
		list = append(list, tree.Member{Name: m.Name, Node: *placed(&m.Node, n)})
	}
	return with(&tree.Node{
		Line: n.Line,
		File: n.File,
		Kind: update.Kind,
	}, list)
}
