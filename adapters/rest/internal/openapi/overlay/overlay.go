// Package overlay reads OpenAPI Overlays (version 1.0.0 of that specification) and applies them to
// documents. An overlay is a list of actions that change the values that JSONPath expressions (RFC
// 9535) select.
//
// Apply does not change its document: the result shares the unchanged parts. A new part has the
// position of the value into which it was merged, since its references resolve from there.
package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/theory/jsonpath"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Overlay is a file with actions. It is safe for concurrent use.
type Overlay struct {
	// Name is the file's name in messages.
	Name string
	// Far says that values of the overlay have references to texts other than the document.
	Far     bool
	actions []action
}

// action is one change.
type action struct {
	line   int
	text   string // the target as written
	target *jsonpath.Path
	update *tree.Node // nil without an update
	remove bool
}

// MaxBytes bounds a file, in bytes. maxUpdate bounds the values of one update.
const (
	MaxBytes  = 8 << 20
	maxUpdate = 1 << 20
)

// Parse parses an overlay in YAML or JSON. The error has a line for each fault.
func Parse(name string, data []byte) (*Overlay, error) {
	o := &Overlay{Name: name}
	var faults []error
	fault := func(line int32, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s: has more than %d bytes", name, MaxBytes)
	}
	root, far, err := tree.Parse(data, 0, func(line int32, text string) { fault(line, "%s", text) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if version := root.Scalar("overlay"); !strings.HasPrefix(version, "1.") {
		return nil, fmt.Errorf("%s:%d: is not an OpenAPI overlay, which begins with overlay: 1.0.0", name, root.Line)
	}
	known(root, fault, "overlay", "info", "extends", "actions")
	list := root.Get("actions")
	if !list.Is(tree.Array) || len(list.Members()) == 0 {
		fault(root.Line, "actions must be a list of at least one action")
	} else {
		for i := range list.Members() {
			if a, ok := actionOf(&list.Members()[i].Node, fault); ok {
				o.actions = append(o.actions, a)
			}
		}
	}
	o.Far = far
	return o, errors.Join(faults...)
}

// known reports unknown members of an object.
func known(n *tree.Node, fault func(int32, string, ...any), names ...string) {
	for i := range n.Members() {
		if m := &n.Members()[i]; !slices.Contains(names, m.Name) && !strings.HasPrefix(m.Name, "x-") {
			fault(m.Node.Line, "unknown key %q: allowed are %s", tree.Short(m.Name), strings.Join(names, ", "))
		}
	}
}

func actionOf(n *tree.Node, fault func(int32, string, ...any)) (a action, ok bool) {
	if !n.Is(tree.Object) {
		fault(n.Line, "an action must be an object with target, and update or remove")
		return a, false
	}
	known(n, fault, "target", "description", "update", "remove")
	a = action{
		line:   int(n.Line),
		text:   n.Str("target"),
		update: n.Get("update"),
		remove: n.Flag("remove"),
	}
	if target := n.Get("target"); target != nil {
		a.line = int(target.Line)
	}
	if a.text == "" {
		fault(int32(a.line), "an action needs a target: a JSONPath expression such as $.paths['/pets'].get")
		return a, false
	}
	var err error
	if a.target, err = parser.Parse(a.text); err != nil {
		fault(int32(a.line), "target %s: %s", tree.Short(a.text), strings.TrimPrefix(err.Error(), "jsonpath: "))
		return a, false
	}
	if remove := n.Get("remove"); remove != nil && !remove.Is(tree.Boolean) {
		fault(remove.Line, "remove must be true or false")
		return a, false
	}
	if a.update != nil && count(a.update, map[*tree.Kids]int{}) > maxUpdate {
		fault(a.update.Line, "update has more than %d values", maxUpdate)
		return a, false
	}
	if a.update == nil && !a.remove {
		fault(int32(a.line), "an action needs update, or remove: true")
		return a, false
	}
	return a, true
}
