package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// MaxFile is the maximum size of a file in bytes.
const MaxFile = 4 << 20

const (
	maxDepth  = 100     // levels of lists and mappings
	maxCopies = 100_000 // total number of values in all aliases
)

// broken is the error for a text that cannot be read. If the violated rule is not a YAML rule, column is 0.
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
	errLarge  = fmt.Errorf("the file is larger than %d MiB: move large parts to separate files, and name those files here", MaxFile>>20)
	errCopies = fmt.Errorf("aliases stand for more than %d values: write out what each server needs, or make several files", maxCopies)
)

// Parse reads YAML or JSON and returns the file's one document, or nil if the file is empty. Its time and memory are
// linear in the size of the text. It refuses a text that is too large or too deep, or whose aliases stand for too many
// values. The errors show no values.
func Parse(data []byte) (*yaml.Node, error) {
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
	var root *yaml.Node
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
		case n.Kind == yaml.ScalarNode && n.ShortTag() == Null && n.Value == "":
		case root != nil:
			return nil, &broken{line: n.Line, message: "the file has a second document: only one is read, so remove the line with ---"}
		default:
			root = n
		}
	}
	if root == nil {
		return nil, nil
	}
	c := counter{anchors: map[*yaml.Node]int{}}
	if _, err := c.values(root, 0); err != nil {
		return nil, err
	}
	return root, nil
}

// counter counts the values of aliases.
type counter struct {
	anchors map[*yaml.Node]int // number of values in each finished node that has an anchor
	copies  int
}

// values returns the number of values in n. It checks the depth again, because the library counts lists and mappings in
// brackets separately.
func (c *counter) values(n *yaml.Node, depth int) (int, error) {
	if depth > maxDepth {
		return 0, &broken{line: n.Line, message: errDeep.Error()}
	}
	if n.Kind == yaml.AliasNode {
		count, above := c.anchors[n.Alias]
		if !above {
			return 0, &broken{n.Line, n.Column, "this alias stands within what it stands for: write out what is meant"}
		}
		if c.copies += count; c.copies > maxCopies {
			return 0, &broken{line: n.Line, message: errCopies.Error()}
		}
		return count, nil
	}
	count := 1 + len(n.Value)/100 // a long text counts as several values
	for _, child := range n.Content {
		more, err := c.values(child, depth+1)
		if err != nil {
			return 0, err
		}
		count += more
	}
	if n.Anchor != "" {
		c.anchors[n] = count
	}
	if n.Tag == "!!timestamp" && !tagged(n) {
		n.Tag = String // here, a date is text
	}
	return count, nil
}

// These constants are the kinds of values, as YAML tags.
const (
	Null   = "!!null"
	Bool   = "!!bool"
	Int    = "!!int"
	Float  = "!!float"
	String = "!!str"
	List   = "!!seq"
	Map    = "!!map"
)

// Kind returns the kind of a value, with aliases resolved. If the file gives the value a tag, Kind returns "".
func Kind(n *yaml.Node) string {
	n = Resolve(n)
	if tagged(n) {
		return ""
	}
	switch tag := n.ShortTag(); tag {
	case Null, Bool, Int, Float, List, Map:
		return tag
	}
	return String
}

func tagged(n *yaml.Node) bool { return n.Style&yaml.TaggedStyle != 0 || n.Tag == "!" }

// Resolve follows an alias. Parse refuses aliases that lead back to themselves.
func Resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func IsTrue(n *yaml.Node) bool {
	return Kind(n) == Bool && strings.EqualFold(Resolve(n).Value, "true")
}

// unreadable turns an error of the library into a broken.
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
	case strings.HasPrefix(e.Message, "unknown anchor"): // the anchor's name may be a secret
		return &broken{at.Line, at.Column, "not valid YAML: there is no anchor for this alias above; put text that begins with * in quotes"}
	case at.Line > 1 && at.Column == 1 && at.Line > bytes.Count(data, []byte("\n")): // after the last line
		at = e.ContextMark
		return &broken{at.Line, at.Column, "not valid YAML: the file ends " + e.ContextMsg + " that begins here"}
	}
	message := strings.ReplaceAll(e.Message, "did not find expected <document start>", "a value is not allowed here")
	return &broken{at.Line, at.Column, "not valid YAML: " + message}
}

// escape matches two backslashes, and a character that JSON writes as two escapes, which YAML does not allow.
var escape = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)

// foreign replaces characters that JSON and YAML read differently: tabs, which no JSON text contains, a line break of
// YAML, and characters that YAML refuses.
var foreign = strings.NewReplacer("\t", " ", "\u0085", `\u0085`, "\ufffe", `\ufffe`, "\uffff", `\uffff`)

// forYAML turns valid JSON into YAML with the same values.
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
