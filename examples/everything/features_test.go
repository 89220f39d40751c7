package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestPrompts(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		cs := connect(t, testSettings(), revision, nil)
		for _, tt := range []struct {
			name string
			args map[string]string
			want string // empty: an error
		}{
			{"simple-prompt", nil, "This is a simple prompt without arguments."},
			{"args-prompt", map[string]string{"city": "Austin", "state": "Texas"}, "What's weather in Austin, Texas?"},
			{"args-prompt", map[string]string{"city": "Oslo"}, "What's weather in Oslo?"},
			{"args-prompt", map[string]string{"state": "Texas"}, ""},
			{"completable-prompt", map[string]string{"department": "Sales", "name": "Eve"}, "Please promote Eve to the head of the Sales team."},
			{"completable-prompt", map[string]string{"department": "Sales"}, ""},
			{"resource-prompt", map[string]string{"resourceType": "text", "resourceId": "4"}, "This prompt includes the text resource 4. Please analyze the following resource:"},
			{"resource-prompt", map[string]string{"resourceType": "image", "resourceId": "4"}, ""},
			{"resource-prompt", map[string]string{"resourceType": "text", "resourceId": "0"}, ""},
			{"extra-prompt", nil, ""},
		} {
			res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: tt.name, Arguments: tt.args})
			switch {
			case tt.want == "" && err == nil:
				t.Errorf("%s(%v) is no error", tt.name, tt.args)
			case tt.want != "" && err != nil:
				t.Errorf("%s(%v): %v", tt.name, tt.args, err)
			case err == nil && texts([]mcp.Content{res.Messages[0].Content}) != tt.want:
				t.Errorf("%s(%v) = %q, want %q", tt.name, tt.args, texts([]mcp.Content{res.Messages[0].Content}), tt.want)
			}
		}
	})
}

func TestResourcePrompt(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{
		Name: "resource-prompt", Arguments: map[string]string{"resourceType": "blob", "resourceId": "5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Messages[1].Content.(*mcp.EmbeddedResource).Resource; got.URI != "demo://resource/dynamic/blob/5" || len(got.Blob) == 0 {
		t.Errorf("the prompt embeds %+v", got)
	}
}

func TestCompletion(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	prompt := func(name string) *mcp.CompleteReference {
		return &mcp.CompleteReference{Type: "ref/prompt", Name: name}
	}
	template := func(uri string) *mcp.CompleteReference { return &mcp.CompleteReference{Type: "ref/resource", URI: uri} }
	for _, tt := range []struct {
		name       string
		ref        *mcp.CompleteReference
		arg, value string
		chosen     map[string]string
		want       []string
	}{
		{"departments", prompt("completable-prompt"), "department", "", nil, []string{"Engineering", "Sales", "Marketing", "Support"}},
		{"department, lower case", prompt("completable-prompt"), "department", "s", nil, []string{"Sales", "Support"}},
		{"names of a department", prompt("completable-prompt"), "name", "", map[string]string{"department": "Support"}, []string{"John", "Kim", "Lee"}},
		{"name of a department", prompt("completable-prompt"), "name", "B", map[string]string{"department": "Engineering"}, []string{"Bob"}},
		{"name without a department", prompt("completable-prompt"), "name", "B", nil, []string{}},
		{"name of no department", prompt("completable-prompt"), "name", "", map[string]string{"department": "Gardening"}, []string{}},
		{"resource type", prompt("resource-prompt"), "resourceType", "b", nil, []string{"blob"}},
		{"not completable", prompt("args-prompt"), "city", "A", nil, []string{}},
		{"index", template("demo://resource/dynamic/text/{index}"), "index", "99", nil, []string{"99", "990", "991", "992", "993", "994", "995", "996", "997", "998", "999"}},
		{"index of a blob", template("demo://resource/dynamic/blob/{index}"), "index", "1000", nil, []string{"1000"}},
		{"no index", template("demo://resource/dynamic/blob/{index}"), "index", "x", nil, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			params := &mcp.CompleteParams{Ref: tt.ref, Argument: mcp.CompleteParamsArgument{Name: tt.arg, Value: tt.value}}
			if tt.chosen != nil {
				params.Context = &mcp.CompleteContext{Arguments: tt.chosen}
			}
			res, err := cs.Complete(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Completion; !slices.Equal(got.Values, tt.want) || got.Total != len(tt.want) || got.HasMore {
				t.Errorf("completion is %+v, want %v", got, tt.want)
			}
		})
	}

	many, err := cs.Complete(t.Context(), &mcp.CompleteParams{
		Ref: template("demo://resource/dynamic/text/{index}"), Argument: mcp.CompleteParamsArgument{Name: "index"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := many.Completion; len(got.Values) != 100 || got.Total != 1000 || !got.HasMore {
		t.Errorf("%d values of %d, more: %v", len(got.Values), got.Total, got.HasMore)
	}
	if _, err := cs.Complete(t.Context(), &mcp.CompleteParams{Ref: prompt("nobody's"), Argument: mcp.CompleteParamsArgument{Name: "x"}}); err == nil {
		t.Error("completed an argument of a prompt that does not exist")
	}
}

func TestResources(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		cs := connect(t, testSettings(), revision, nil)
		if !strings.Contains(cs.InitializeResult().Instructions, "`echo`") {
			t.Errorf("instructions are %q", cs.InitializeResult().Instructions)
		}
		n := 0
		for r, err := range cs.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
			if err != nil {
				t.Fatal(err)
			}
			if c := res.Contents[0]; c.URI != r.URI || c.MIMEType != "text/markdown" || int64(len(c.Text)) != r.Size {
				t.Errorf("%s: %s, %d bytes, listed as %d", r.URI, c.MIMEType, len(c.Text), r.Size)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%d static documents, want 3", n)
		}
		templates, err := cs.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 2 {
			t.Errorf("templates are %v, %v", templates, err)
		}
	})
}

func TestReadDynamic(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	for _, tt := range []struct {
		uri string
		ok  bool
	}{
		{"demo://resource/dynamic/text/1", true},
		{"demo://resource/dynamic/blob/123456", true},
		{"demo://resource/dynamic/text/0", false},
		{"demo://resource/dynamic/text/-1", false},
		{"demo://resource/dynamic/text/007", false},
		{"demo://resource/dynamic/text/one", false},
		{"demo://resource/dynamic/image/1", false},
		{"demo://resource/static/document/missing.md", false},
		{"demo://resource/extra", false},
	} {
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: tt.uri})
		if (err == nil) != tt.ok {
			t.Errorf("reading %s: %v", tt.uri, err)
		}
		if err == nil && res.Contents[0].URI != tt.uri {
			t.Errorf("reading %s gave %s", tt.uri, res.Contents[0].URI)
		}
	}
}
