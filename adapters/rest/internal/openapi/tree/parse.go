package tree

import "bytes"

// Parse reads a text into a tree, as JSON or YAML by its content. far reports whether the text
// refers to others. Every node gets the number of the file. Parse calls warn for omitted parts.
// data must not change afterwards: texts are slices of it.
func Parse(data []byte, file uint16, warn func(line int32, text string)) (root *Node, far bool, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return parseYAML(data, file, warn)
	}
	if root, far, err = parseJSON(data, file, warn); err != nil {
		// A flow mapping of YAML begins the same way. So a warning about the text as JSON may appear twice.
		if other, leads, _ := parseYAML(data, file, warn); other != nil {
			return other, leads, nil
		}
	}
	return root, far, err
}
