package openapi

import (
	"strings"
)

// kind is what a node is, in JSON's terms.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}

func (k kind) String() string { return kindNames[k] }

// node is a value of a document. Members keep their order, numbers their
// digits, and everything its line. A document of 13 MB has half a million of
// them, so they are small and lie in few pieces of memory.
type node struct {
	line int32
	file uint16 // in loader.files
	kind kind
	text string // of a string without its escapes; of a number or boolean as JSON writes it
	kids *kids  // of an array or object; nil when it is empty
}

type kids struct {
	list  []member
	index map[string]int32 // of the members of a large object by name
	marks uint64           // of the names: most that are looked for are not there
}

// member of an object, or item of an array; those have no name.
type member struct {
	name string
	node node
}

// indexFrom is the number of members from which looking for one by name goes
// by an index.
const indexFrom = 16

// newKids makes an object's members out of list, which it keeps. Of members
// with the same name the last counts; dup is told of them.
func newKids(list []member, dup func(*member)) *kids {
	k := &kids{list: list}
	if len(list) > indexFrom {
		k.index = make(map[string]int32, len(list))
	}
	k.list = k.list[:0]
	for i := range list {
		m := list[i]
		if at := k.at(m.name); at >= 0 {
			dup(&m)
			k.list[at].node = m.node
			continue
		}
		if k.index != nil {
			k.index[m.name] = int32(len(k.list))
		}
		k.marks |= mark(m.name)
		k.list = append(k.list, m)
	}
	clear(list[len(k.list):])
	return k
}

// mark returns the bit of a name. Others may have the same.
func mark(name string) uint64 {
	if name == "" {
		return 1
	}
	return 1 << ((uint(len(name))*7 + uint(name[0])*5 + uint(name[len(name)-1])) & 63)
}

// marksOf returns the bits of several names.
func marksOf(names ...string) (marks uint64) {
	for _, name := range names {
		marks |= mark(name)
	}
	return marks
}

func (k *kids) at(name string) int {
	if k.index != nil {
		if i, ok := k.index[name]; ok {
			return int(i)
		}
		return -1
	}
	for i := range k.list {
		if k.list[i].name == name {
			return i
		}
	}
	return -1
}

// members returns the members of an object or the items of an array.
func (n *node) members() []member {
	if n == nil || n.kids == nil {
		return nil
	}
	return n.kids.list
}

// get returns the member of this name, or nil; n may be nil.
func (n *node) get(name string) *node {
	if n == nil || n.kind != object || n.kids == nil || n.kids.marks&mark(name) == 0 {
		return nil
	}
	if i := n.kids.at(name); i >= 0 {
		return &n.kids.list[i].node
	}
	return nil
}

// hasAny reports whether an object may have members of these names. It is sure
// only that there are none.
func (n *node) hasAny(names uint64) bool {
	return n != nil && n.kind == object && n.kids != nil && n.kids.marks&names != 0
}

// is reports whether there is a node of this kind.
func (n *node) is(k kind) bool { return n != nil && n.kind == k }

// str returns the text of a string member, "" when there is none.
func (n *node) str(name string) string {
	if m := n.get(name); m.is(text) {
		return m.text
	}
	return ""
}

// scalar returns the text of a member that is a string, number or boolean:
// hand-written documents have version: 1.0 and the like.
func (n *node) scalar(name string) string {
	if m := n.get(name); m != nil && m.kind != array && m.kind != object {
		return m.text
	}
	return ""
}

// flag reports whether the member is true, which some write in quotes.
func (n *node) flag(name string) bool {
	m := n.get(name)
	return m != nil && (m.kind == boolean || m.kind == text) && m.text == "true"
}

// strings returns the strings of a member that is an array of them, or is one.
func (n *node) strings(name string) []string {
	m := n.get(name)
	if m.is(text) {
		return []string{m.text}
	}
	if !m.is(array) {
		return nil
	}
	var out []string
	for i := range m.members() {
		if item := &m.kids.list[i].node; item.kind == text || item.kind == number {
			out = append(out, item.text)
		}
	}
	return out
}

// leadsOut reports whether a member is a reference to another text.
func (m *member) leadsOut() bool {
	return m.name == "$ref" && m.node.kind == text && !strings.HasPrefix(m.node.text, "#")
}
