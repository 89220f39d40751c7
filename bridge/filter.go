package bridge

import "encoding/json"

// Filter chooses what clients see of one kind of a server's offers: its tools,
// its prompts, or its resources and templates. What they do not see they
// cannot use either. Patterns are matched against the server's own names, for
// resources against the URI, and for templates against the template; * stands
// for any text, ? for any character. The zero value lets everything through.
type Filter struct {
	Allow []string // when not empty, what matches none of these is hidden
	Deny  []string // what matches one of these is hidden; it wins over Allow
	// Rename gives names that clients see, by the server's own. For resources,
	// which are called by their URI, it changes the name that is shown.
	Rename map[string]string
	// Override changes how something is described, by the server's own name or
	// URI.
	Override map[string]Override
}

// Override changes how one tool, prompt or resource is described. What is nil
// stays as the server has it.
type Override struct {
	Title       *string
	Description *string
	// Annotations are members that replace those of the same name; null removes
	// one.
	Annotations map[string]json.RawMessage
}
