package openapi

import (
	"strconv"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// def returns the name of a schema among the definitions, and adds the schema if it is new. A nil n
// stands for the schema of files.
func (r *render) def(n *tree.Node) string {
	key := defKey{n, r.files}
	d := r.defs[key]
	if d == nil {
		name := "File"
		if n != nil {
			if name = r.l.labels[n]; name == "" {
				name = "Schema"
			}
		}
		for base, i := name, 2; r.names[name]; i++ {
			name = base + "_" + strconv.Itoa(i)
		}
		d = &def{
			defKey: key,
			name:   name,
			opt:    r.opt,
		}
		r.defs[key] = d
		r.names[name] = true
		r.order = append(r.order, d)
		r.open += r.stubSize(d)
		r.queue(d)
	} else if r.opt < d.opt && !d.done {
		d.opt = r.opt // this way has fewer optional properties
		r.queue(d)
	}
	return d.name
}

func (r *render) queue(d *def) {
	for len(r.buckets) <= d.opt {
		r.buckets = append(r.buckets, nil)
	}
	r.buckets[d.opt] = append(r.buckets[d.opt], d)
}

// definitions writes $defs. The definitions with the fewest optional properties on the way come first.
// If space is short, the rest are stubs.
func (r *render) definitions() {
	if len(r.order) == 0 {
		return
	}
	r.key("$defs")
	r.b = append(r.b, '{')
	for level := 0; level < len(r.buckets); level++ {
		for i := 0; i < len(r.buckets[level]); i++ {
			d := r.buckets[level][i]
			if d.done {
				continue
			}
			d.done = true
			if r.stop() { // references to the definition must still resolve
				r.raw(d.name, "{}")
				continue
			}
			mark, known := len(r.b), len(r.order)
			r.open -= r.stubSize(d)
			r.trying = r.greedy
			r.define(d, false)
			r.trying = false
			if r.greedy && r.full() {
				for _, late := range r.order[known:] {
					late.done = true
					r.open -= r.stubSize(late)
					delete(r.defs, late.defKey)
					delete(r.names, late.name)
				}
				r.order = r.order[:known]
				r.b = r.b[:mark]
				r.define(d, true)
			}
		}
	}
	r.b = append(r.b, '}')
}

// stubSize returns an upper bound for the size of a definition as a stub, in bytes.
func (r *render) stubSize(d *def) int {
	if d.n == nil {
		return len(r.fileSchema()) + len(d.name) + 4
	}
	desc := min(len(d.n.Scalar("description")), r.longer, 100)
	// Descriptions may contain a few characters that need escapes.
	return len(d.name) + len(`"":{"type":["object","null"],"description":" ()"},`) + desc + desc/16
}

func (r *render) define(d *def, stub bool) {
	r.key(d.name)
	if d.n == nil {
		r.b = append(r.b, r.fileSchema()...)
		return
	}
	r.depth, r.opt, r.files, r.current, r.viaAll, r.mixed = 1, d.opt, d.files, d.n, false, false
	r.b = append(r.b, '{')
	if stub {
		r.stub(d.n, "")
	} else {
		r.members(d.n, d.name, "")
	}
	r.b = append(r.b, '}')
}

// hop has the arguments of reaches.
type hop struct {
	from, to *tree.Node
	all      bool // allOf counts as well
}

// reaches reports whether the keywords inPlace of one schema lead to another. allOf counts only if
// all is set.
func (l *loader) reaches(from, to *tree.Node, all bool) bool {
	h := hop{from, to, all}
	if known, ok := l.loops[h]; ok {
		return known
	}
	seen := map[*tree.Node]bool{}
	todo := []*tree.Node{from}
	found := false
	for len(todo) > 0 && !found {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		if l.refOf(n) != nil {
			todo = append(todo, l.deref(n))
			continue
		}
		found = n == to || len(seen) > 2000 // too complex to decide
		for _, word := range inPlace {
			next := n.Get(word)
			switch {
			case next == nil || word == "allOf" && !all:
			case next.Kind == tree.Array || word == "dependentSchemas":
				for i := range next.Members() {
					todo = append(todo, &next.Members()[i].Node)
				}
			default:
				todo = append(todo, next)
			}
		}
	}
	if len(l.loops) < 1<<16 {
		l.loops[h] = found
	}
	return found
}

// maxWays bounds how many schemas a validator may check for one value.
const maxWays = 5000

// ways counts the schemas that a validator checks for one value. A schema counts once for each way
// that leads to it.
func (l *loader) ways(n *tree.Node, depth int) int {
	known, ok := l.counts[n]
	if ok {
		return known
	}
	if depth > tree.MaxDepth {
		return maxWays + 1
	}
	l.counts[n] = 0 // a cycle adds no way
	sum := 1
	add := func(n *tree.Node) {
		if n = l.derefOptional(n); n != nil && sum <= maxWays {
			sum += l.ways(n, depth+1)
		}
	}
	for _, word := range inPlace {
		next := n.Get(word)
		if next.Is(tree.Array) || word == "dependentSchemas" {
			for i := range next.Members() {
				add(&next.Members()[i].Node)
			}
		} else if next != nil {
			add(next)
		}
	}
	l.counts[n] = sum
	return sum
}

// renames tracks names of properties that clients see changed, since model providers would refuse
// the document's names.
type renames struct {
	toOwn   map[string]string // by shown name: the document's
	toShown map[string]string // by the document's name: the shown one
	plain   map[string]bool   // names shown unchanged; nil if these are not tracked
	open    bool              // callers choose the names of some members
	hashed  bool              // new names get a hash, so that they are unique
	clash   bool              // two properties have the same shown name
}

// shown returns the name that models see for the document's name.
func (r *renames) shown(own string) string {
	if isPlainName(own) {
		if r.plain != nil {
			if r.plain[own] = true; r.toOwn[own] != "" {
				r.clash = true
			}
		}
		return own
	}
	if s, ok := r.toShown[own]; ok {
		return s
	}
	s := argumentName(own)
	if r.hashed || s == "" {
		s = tail(s, own, 64)
	}
	if _, taken := r.toOwn[s]; taken || r.plain[s] {
		r.clash = true
	}
	if r.toOwn == nil {
		r.toOwn, r.toShown = map[string]string{}, map[string]string{}
	}
	r.toOwn[s], r.toShown[own] = own, s
	return s
}

// mustRewrite reports whether the schema must be written again: a name was changed while unchanged
// names were not tracked, or names must become unique.
func (r *renames) mustRewrite() bool {
	return len(r.toOwn) > 0 && (r.plain == nil || !r.hashed && (r.clash || r.open))
}

// next returns the renames for writing the schema again.
func (r *renames) next() renames {
	return renames{plain: map[string]bool{}, hashed: r.plain != nil}
}
