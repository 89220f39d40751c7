package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// MaxFile is more than any sensible file has.
const MaxFile = 4 << 20

const (
	maxDepth  = 100     // of lists and mappings within each other
	maxCopies = 100_000 // values that aliases may stand for
)

// Parsed is a file's one document as a syntax tree.
type Parsed struct {
	Root    ast.Node // nil when the file is empty
	aliases map[*ast.AliasNode]ast.Node
	values  *yaml.Node
	text    []byte // that was parsed
}

// broken is why a text is no good. Column is 0 where the rule is not one of YAML.
type broken struct {
	line, column int
	message      string
}

// Error implements error.
func (b *broken) Error() string {
	if b.line == 0 {
		return b.message
	}
	return fmt.Sprintf("line %d: %s", b.line, b.message)
}

var (
	errDeep   = fmt.Errorf("lists and mappings are nested deeper than %d levels: remove the brackets or the indentation that is too much", maxDepth)
	errLarge  = fmt.Errorf("the file is larger than %d MiB: keep what is large in files of its own, and name them", MaxFile>>20)
	errCopies = fmt.Errorf("aliases stand for more than %d values: write out what each server needs, or make several files", maxCopies)
)

// Parse reads YAML, or JSON, in time and memory that grow as the text does: a text
// that is too large, too deep, or that multiplies itself by aliases is refused. The
// errors show no value.
func Parse(data []byte) (*Parsed, error) {
	if len(data) > MaxFile {
		return nil, &broken{message: errLarge.Error()}
	}
	if json.Valid(data) {
		data = forYAML(data)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV3Defaults(), yaml.WithPlugin(loaderlimits.New(
		loaderlimits.AliasNone(), // counted below, where the line is known
		loaderlimits.DepthFunc(func(depth int, _ *loaderlimits.DepthContext) error {
			if depth > maxDepth {
				return errDeep
			}
			return nil
		}),
	)))
	if err != nil {
		return nil, err
	}
	p := &Parsed{text: data, aliases: map[*ast.AliasNode]ast.Node{}}
	for {
		var doc yaml.Node
		if err := loader.Load(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, unreadable(data, err)
		}
		n := &doc
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			n = n.Content[0]
		}
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value == "":
		case p.values != nil:
			return nil, &broken{line: n.Line, message: "the file has a second document: only one is read, so remove the line with ---"}
		default:
			p.values = n
		}
	}
	if p.values == nil {
		return p, nil
	}
	t := &tree{aliases: p.aliases, done: map[*yaml.Node]made{}}
	p.Root, err = t.node(p.values, 0)
	return p, err
}

// Decode reads the values into what into points to, as the library does.
func (p *Parsed) Decode(into any) error {
	if p.values == nil {
		return nil
	}
	return p.values.Decode(into)
}

// unreadable returns what the library says as broken.
func unreadable(data []byte, err error) error {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return &broken{message: "not valid YAML"}
	}
	at := e.Mark
	if at.Line == 0 {
		at = e.ContextMark
	}
	switch {
	case e.Message == errDeep.Error():
		return &broken{line: at.Line, message: e.Message}
	case strings.HasPrefix(e.Message, "unknown anchor"): // which may be a secret
		return &broken{at.Line, at.Column, "not valid YAML: there is no anchor for this alias above; put text that begins with * in quotes"}
	case at.Line > 1 && at.Column == 1 && at.Line > bytes.Count(data, []byte("\n")): // behind the last line
		at = e.ContextMark
		return &broken{at.Line, at.Column, "not valid YAML: the file ends " + e.ContextMsg + " that begins here"}
	}
	message := strings.ReplaceAll(e.Message, "did not find expected <document start>", "a value is not allowed here")
	return &broken{at.Line, at.Column, "not valid YAML: " + message}
}

// escape is a backslash that stands for itself, or a character that JSON writes as
// two, which YAML does not know.
var escape = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)

// foreign writes what JSON and YAML read differently: tabs, which no text of JSON holds, a
// line break of YAML, and characters that YAML refuses.
var foreign = strings.NewReplacer("\t", " ", "\u0085", `\u0085`, "\ufffe", `\ufffe`, "\uffff", `\uffff`)

// forYAML writes valid JSON as YAML with the same values.
func forYAML(data []byte) []byte {
	data = []byte(foreign.Replace(string(data)))
	return escape.ReplaceAllFunc(data, func(text []byte) []byte {
		var s string
		if len(text) == 2 || json.Unmarshal([]byte(`"`+string(text)+`"`), &s) != nil {
			return text
		}
		return []byte(s)
	})
}

// tree makes the syntax tree.
type tree struct {
	aliases map[*ast.AliasNode]ast.Node
	done    map[*yaml.Node]made // what has an anchor
	copies  int
}

// made is what an anchor stands for, and of how many values it consists; a node of nil
// is being made.
type made struct {
	node   ast.Node
	values int
}

func (t *tree) node(n *yaml.Node, depth int) (ast.Node, error) {
	node, _, err := t.sized(n, depth)
	return node, err
}

// sized also returns of how many values a node consists.
func (t *tree) sized(n *yaml.Node, depth int) (ast.Node, int, error) {
	at := &token.Position{Line: n.Line, Column: n.Column}
	if depth > maxDepth {
		return nil, 0, &broken{line: n.Line, message: errDeep.Error()}
	}
	if n.Kind == yaml.AliasNode {
		of := t.done[n.Alias]
		if of.node == nil {
			return nil, 0, &broken{at.Line, at.Column, "this alias stands within what it stands for: write out what is meant"}
		}
		if t.copies += of.values; t.copies > maxCopies {
			return nil, 0, &broken{line: n.Line, message: errCopies.Error()}
		}
		alias := ast.Alias(token.Alias("*", at))
		alias.Value = ast.String(token.New(n.Value, n.Value, at))
		t.aliases[alias] = of.node
		return alias, of.values, nil
	}
	node, values, err := t.bare(n, at, depth)
	if err != nil {
		return nil, 0, err
	}
	if n.Style&yaml.TaggedStyle != 0 || n.Tag == "!" {
		tag := ast.Tag(token.Tag(n.Tag, n.Tag, at))
		tag.Value = node
		node = tag
	}
	if n.Anchor != "" {
		t.done[n] = made{node, values}
		anchor := ast.Anchor(token.Anchor("&", at))
		anchor.Name, anchor.Value = ast.String(token.New(n.Anchor, n.Anchor, at)), node
		node = anchor
	}
	return node, values, nil
}

// bare makes a node without its tag and its anchor.
func (t *tree) bare(n *yaml.Node, at *token.Position, depth int) (_ ast.Node, values int, err error) {
	flow := n.Style&yaml.FlowStyle != 0
	switch n.Kind {
	case yaml.SequenceNode:
		seq := ast.Sequence(token.SequenceStart("[", at), flow)
		for _, item := range n.Content {
			v, more, err := t.sized(item, depth+1)
			if err != nil {
				return nil, 0, err
			}
			seq.Values, values = append(seq.Values, v), values+more
		}
		return seq, values + 1, nil
	case yaml.MappingNode:
		m := ast.Mapping(token.MappingStart("{", at), flow)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, keys, err := t.key(n.Content[i], depth+1)
			if err != nil {
				return nil, 0, err
			}
			v, more, err := t.sized(n.Content[i+1], depth+1)
			if err != nil {
				return nil, 0, err
			}
			m.Values, values = append(m.Values, ast.MappingValue(token.MappingValue(key.GetToken().Position), key, v)), values+keys+more
		}
		return m, values + 1, nil
	}
	if n.Tag == "!!timestamp" && n.Style&yaml.TaggedStyle == 0 {
		n.Tag = "!!str" // a date is text here
	}
	return scalar(n, at), 1, nil
}

// key makes the key of a mapping.
func (t *tree) key(n *yaml.Node, depth int) (ast.MapKeyNode, int, error) {
	node, values, err := t.sized(n, depth)
	if err != nil {
		return nil, 0, err
	}
	if key, ok := node.(ast.MapKeyNode); ok {
		return key, values, nil
	}
	key := ast.MappingKey(token.MappingKey(node.GetToken().Position))
	key.Value = node
	return key, values, nil
}

func scalar(n *yaml.Node, at *token.Position) ast.Node {
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		text := ast.Literal(token.Literal("|", "|", at))
		text.Value = ast.String(token.String(n.Value, n.Value, at))
		return text
	case n.Style&yaml.SingleQuotedStyle != 0:
		return ast.String(token.SingleQuote(n.Value, n.Value, at))
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return ast.String(token.DoubleQuote(n.Value, n.Value, at))
	case n.Tag == "!!merge":
		return ast.MergeKey(token.MergeKey("<<", at))
	case n.Value == "":
		return ast.Null(token.New("null", "", at))
	}
	tk := token.New(n.Value, n.Value, at)
	switch tk.Type {
	case token.NullType, token.ImplicitNullType:
		return ast.Null(tk)
	case token.BoolType:
		return ast.Bool(tk)
	case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType:
		return ast.Integer(tk)
	case token.FloatType:
		return ast.Float(tk)
	case token.InfinityType:
		return ast.Infinity(tk)
	case token.NanType:
		return ast.Nan(tk)
	}
	return ast.String(tk)
}
