package integration

import (
	"encoding/json"
	"maps"
	"os"
	"testing"
)

// A flavour is what the two everything servers do differently. client.mjs
// reads the same file.
type flavour struct {
	Like    string   // another one, but for Errors and ReplaysAll
	Without []string // of its errors, those that cannot be tried
	Server  struct {
		Name, Version, Instructions string
		Capabilities                map[string]any
	}
	Names            map[string]string // of the tools that the servers name differently
	Tools            []string
	Hidden           []string // from clients that lack a capability
	Prompts          []string
	Resource         struct{ URI, MIMEType, Contains string }
	ResourceTypes    struct{ Text, Blob string }
	TemplateArgument string
	Links            []string
	Paginates        bool
	Form             struct {
		Content map[string]any
		Integer string // a property with a maximum of 100
	}
	Log           struct{ Level, By, Simulated string }
	StopsOnCancel bool // and then logs no more steps
	AsksOnChange  bool // for the roots, when the client says that they have changed
	Changes       []change
	Errors        map[string]refusal
	ReplaysAll    bool // to a client that resumes one stream, what others carried
}

// A change is a tool that changes a list, and what is new in that then. NAME
// stands for a name that nothing has had before.
type change struct {
	Tool      string
	Arguments map[string]string
	Method    string // of the notification
	Kind      string // tool, prompt or resource
	Item      string // its name, or URI
}

// A refusal is how a server answers a wrong request: with a JSON-RPC error, or
// with a tool's result that says so.
type refusal struct {
	Code     int64
	InResult bool
	Text     string
}

func loadFlavour(t *testing.T, name string) flavour {
	t.Helper()
	text, err := os.ReadFile("flavours.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]flavour
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	f, ok := all[name]
	if !ok {
		t.Fatalf("no flavour %q in flavours.json", name)
	}
	if f.Like == "" {
		return f
	}
	like := all[f.Like]
	maps.Copy(like.Errors, f.Errors)
	for _, kind := range f.Without {
		delete(like.Errors, kind)
	}
	return like
}
