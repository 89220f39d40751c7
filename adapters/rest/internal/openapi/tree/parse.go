package tree

import "bytes"

// Parse makes a tree of a text, JSON or YAML as its content has it. far says
// whether the text refers to others. Every node has the number of the file; warn
// is told of what is left out. data must not change afterwards: texts are parts
// of it.
func Parse(data []byte, file uint16, warn func(line int32, text string)) (root *Node, far bool, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return parseYAML(data, file, warn)
	}
	if root, far, err = parseJSON(data, file, warn); err != nil {
		// A flow mapping of YAML begins the same way. What was said of it as
		// JSON may be said again.
		if other, leads, _ := parseYAML(data, file, warn); other != nil {
			return other, leads, nil
		}
	}
	return root, far, err
}
