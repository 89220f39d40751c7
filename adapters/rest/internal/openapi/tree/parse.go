package tree

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"
)

// Parse reads a text into a tree, as JSON or YAML by its content. far reports whether the text
// refers to others. Every node gets the number of the file. Parse calls warn for omitted parts.
// data must not change afterwards: texts are slices of it.
func Parse(data []byte, file uint16, warn func(line int32, text string)) (root *Node, far bool, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	defer func() {
		if err != nil && !utf8.Valid(data) {
			err = fmt.Errorf("line %d: %s", foreign(data), notUTF8)
		}
	}()
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return parseYAML(data, file, warn)
	}
	if root, far, err = parseJSON(data, file, warn); err == nil && !utf8.Valid(data) {
		warn(int32(min(foreign(data), math.MaxInt32)), notUTF8)
	} else if err != nil {
		// A flow mapping of YAML begins the same way. So a warning about the text as JSON may appear twice.
		if other, leads, _ := parseYAML(data, file, warn); other != nil {
			return other, leads, nil
		}
	}
	return root, far, err
}

const notUTF8 = "has a character that is not UTF-8: save the document as UTF-8"

// foreign returns the line of the first byte that is not UTF-8.
func foreign(data []byte) int {
	at := bytes.IndexRune(data, utf8.RuneError) // finds such bytes, too
	return 1 + bytes.Count(data[:at], []byte("\n"))
}
