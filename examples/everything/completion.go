package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// teams lists the names in each department, in the order of completion.
var teams = []struct {
	department string
	names      []string
}{
	{"Engineering", []string{"Alice", "Bob", "Charlie"}},
	{"Sales", []string{"David", "Eve", "Frank"}},
	{"Marketing", []string{"Grace", "Henry", "Iris"}},
	{"Support", []string{"John", "Kim", "Lee"}},
}

// complete answers completion/complete for prompts and resource templates. For an unknown argument, it returns no
// values and no error, because a client may ask for any argument.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	argument := req.Params.Argument
	chosen := map[string]string{}
	if req.Params.Context != nil {
		chosen = req.Params.Context.Arguments
	}
	var candidates []string
	switch ref := req.Params.Ref; ref.Type + " " + ref.Name + ref.URI {
	case "ref/prompt completable-prompt":
		candidates = teamCandidates(argument.Name, chosen["department"])
	case "ref/prompt resource-prompt":
		switch argument.Name {
		case "resourceType":
			candidates = []string{typeText, typeBlob}
		case "resourceId":
			candidates = indexes()
		}
	case "ref/prompt simple-prompt", "ref/prompt args-prompt":
	case "ref/resource " + dynamicTemplate(typeText), "ref/resource " + dynamicTemplate(typeBlob):
		if argument.Name == "index" {
			candidates = indexes()
		}
	default:
		return nil, invalid("nothing to complete: no prompt or resource template %q", ref.Name+ref.URI)
	}
	return matching(candidates, argument.Value), nil
}

// teamCandidates completes a name in the chosen department. Until a department is chosen, it returns no names.
func teamCandidates(argument, department string) []string {
	var departments []string
	for _, team := range teams {
		if argument == "name" && team.department == department {
			return team.names
		}
		departments = append(departments, team.department)
	}
	if argument == "department" {
		return departments
	}
	return nil
}

// indexes returns more values than one answer can hold, to show hasMore.
func indexes() []string {
	var all []string
	for n := 1; n <= 1000; n++ {
		all = append(all, strconv.Itoa(n))
	}
	return all
}

func matching(candidates []string, typed string) *mcp.CompleteResult {
	const most = 100 // the protocol's limit for one answer
	values := []string{}
	total := 0
	for _, c := range candidates {
		if len(c) < len(typed) || !strings.EqualFold(c[:len(typed)], typed) {
			continue
		}
		total++
		if len(values) < most {
			values = append(values, c)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{
		Values:  values,
		Total:   total,
		HasMore: total > len(values),
	}}
}
