package tree

import (
	"strings"
)

// Kind is the JSON type of a node.
type Kind uint8

const (
	Null Kind = iota
	Boolean
	Number
	Text
	Array
	Object
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}

// String returns the kind for messages, such as "a list".
func (k Kind) String() string { return kindNames[k] }

// Node is a value of a document. A document of 13 MB has half a million nodes, so nodes are small, and
// few allocations hold them.
type Node struct {
	Line int32
	File uint16 // the file's number, as given to Parse
	Kind Kind
	Text string // a string without escapes; a number or boolean as in JSON
	Kids *Kids  // nil for an empty array or object, and for a scalar unless Written differs from Text
}

// Kids are the members of an object or the items of an array. The nodes of YAML aliases share their
// Kids, by which walks recognize visited nodes.
type Kids struct {
	list  []Member
	index map[string]int32 // indexes in list by name; nil for a small object
	said  string           // of a scalar: see Node.Written
	marks uint64           // bits of all names: most lookups are of missing names, and end here
}

// Member is a member of an object, or an item of an array, which has no name.
type Member struct {
	Name string
	Node Node
}

// indexFrom is the number of members from which lookups use an index.
const indexFrom = 16

// newKids returns the members of an object. It keeps list. Of members with the same name, it keeps the
// value of the last one, and calls dup with each after the first.
func newKids(list []Member, dup func(*Member)) *Kids {
	k := &Kids{list: list}
	if len(list) > indexFrom {
		k.index = make(map[string]int32, len(list))
	}
	k.list = k.list[:0]
	for i := range list {
		m := list[i]
		if at := k.at(m.Name); at >= 0 {
			dup(&m)
			k.list[at].Node = m.Node
			continue
		}
		if k.index != nil {
			k.index[m.Name] = int32(len(k.list))
		}
		k.marks |= mark(m.Name)
		k.list = append(k.list, m)
	}
	clear(list[len(k.list):])
	return k
}

// Object returns a new object with n's position. It keeps list.
func (n *Node) Object(list []Member) *Node {
	made := &Node{
		Line: n.Line,
		File: n.File,
		Kind: Object,
	}
	if len(list) > 0 {
		made.Kids = newKids(list, func(*Member) {})
	}
	return made
}

// Array returns a new array with n's position. It keeps list.
func (n *Node) Array(list []Member) *Node {
	made := &Node{
		Line: n.Line,
		File: n.File,
		Kind: Array,
	}
	if len(list) > 0 {
		made.Kids = &Kids{list: list}
	}
	return made
}

// mark returns the bit of a name. Several names share a bit.
func mark(name string) uint64 {
	if name == "" {
		return 1
	}
	return 1 << ((uint(len(name))*7 + uint(name[0])*5 + uint(name[len(name)-1])) & 63)
}

// Marks returns the bits of several names, for HasAny.
func Marks(names ...string) (marks uint64) {
	for _, name := range names {
		marks |= mark(name)
	}
	return marks
}

func (k *Kids) at(name string) int {
	if k.index != nil {
		if i, ok := k.index[name]; ok {
			return int(i)
		}
		return -1
	}
	for i := range k.list {
		if k.list[i].Name == name {
			return i
		}
	}
	return -1
}

// Members returns the members of an object or the items of an array; n may be nil.
func (n *Node) Members() []Member {
	if n == nil || n.Kids == nil {
		return nil
	}
	return n.Kids.list
}

// Get returns the member of this name, or nil; n may be nil.
func (n *Node) Get(name string) *Node {
	if n == nil || n.Kind != Object || n.Kids == nil || n.Kids.marks&mark(name) == 0 {
		return nil
	}
	if i := n.Kids.at(name); i >= 0 {
		return &n.Kids.list[i].Node
	}
	return nil
}

// Written returns the text of a scalar as the document has it, such as 01 for the number 1 in YAML.
func (n *Node) Written() string {
	if n.Kids != nil && n.Kids.said != "" {
		return n.Kids.said
	}
	return n.Text
}

// HasAny reports whether an object may have members with the names of these Marks. Only false is
// certain.
func (n *Node) HasAny(names uint64) bool {
	return n != nil && n.Kind == Object && n.Kids != nil && n.Kids.marks&names != 0
}

// Is reports whether the node exists and has this kind.
func (n *Node) Is(k Kind) bool { return n != nil && n.Kind == k }

// Str returns the text of a string member; empty if there is none.
func (n *Node) Str(name string) string {
	if m := n.Get(name); m.Is(Text) {
		return m.Text
	}
	return ""
}

// Scalar returns the text of a member that is a string, number or boolean, or "". Documents have, for
// example, version: 1.0 for a string.
func (n *Node) Scalar(name string) string {
	if m := n.Get(name); m != nil && m.Kind != Array && m.Kind != Object {
		return m.Text
	}
	return ""
}

// Flag reports whether the member is true, with or without quotes.
func (n *Node) Flag(name string) bool {
	m := n.Get(name)
	return m != nil && (m.Kind == Boolean || m.Kind == Text) && m.Text == "true"
}

// Strings returns the strings of a member that is a list of strings, or a string.
func (n *Node) Strings(name string) []string {
	m := n.Get(name)
	if m.Is(Text) {
		return []string{m.Text}
	}
	if !m.Is(Array) {
		return nil
	}
	var out []string
	for i := range m.Members() {
		if item := &m.Kids.list[i].Node; item.Kind == Text || item.Kind == Number {
			out = append(out, item.Text)
		}
	}
	return out
}

// LeadsOut reports whether a member is a reference to another text.
func (m *Member) LeadsOut() bool {
	return m.Name == "$ref" && m.Node.Kind == Text && !strings.HasPrefix(m.Node.Text, "#")
}
