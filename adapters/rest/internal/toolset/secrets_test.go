package toolset_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// TestPathOf masks probable secrets in the query of a request.
func TestPathOf(t *testing.T) {
	for _, test := range []struct {
		op     openapi.Operation
		hidden []string
		want   string
	}{
		{openapi.Operation{Path: "/x"}, nil, "/x"},
		{openapi.Operation{Path: "/x?api_key=k&sort=name&sig"}, nil, "/x?api_key=***&sort=name&sig"},
		{openapi.Operation{Path: "/x?api%5Fkey=k"}, nil, "/x?api%5Fkey=***"},
		{openapi.Operation{Path: "/x?sort=name"}, []string{"sort"}, "/x?sort=***"},
		{openapi.Operation{Path: "/x?api_key=k", File: "api.yaml"}, nil, "/x?api_key=k"}, // the document's own
	} {
		if got := toolset.PathOf(&test.op, test.hidden...); got != test.want {
			t.Errorf("PathOf(%s) = %s, want %s", test.op.Path, got, test.want)
		}
		test.op.Method = "GET"
		if got := toolset.RequestOf(&test.op, test.hidden...); got != "GET "+test.want {
			t.Errorf("RequestOf(%s) = %s", test.op.Path, got)
		}
	}
}

// TestConcealed: values with a known secret, and values of secret parameters, are not shown.
func TestConcealed(t *testing.T) {
	e := toolset.Entry{Key: "own", Request: "GET /x?from=the-secret&sort=name", Headers: map[string]string{"X-Kind": "of the-secret", "X-Other": "plain"}}
	tool, faults := e.Build()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	tool.Conceal([]string{"the-secret"})
	if got := fmt.Sprint(tool.Settings.Masked, tool.Settings.MaskedQuery, tool.Request(), ", ", tool.Description); got != "[X-Kind] [from]GET /x?from=***&sort=name, GET /x?from=***&sort=name" {
		t.Error(got)
	}
	_, tools := imported(t)
	value := toolset.Entry{Key: "listOrders", Args: []toolset.Arg{{Name: "X-Tenant", Value: json.RawMessage(`"acme"`)}}}
	over, faults := value.Override(tools["listOrders"], toolset.Shared{})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if over.Conceal(nil); len(over.Settings.Masked) > 0 || len(over.Secrets()) > 0 {
		t.Errorf("a tenant is masked: %v, %v", over.Settings.Masked, over.Secrets())
	}
	keyed := toolset.Entry{Key: "own", Request: "GET /x{?api_key}", Args: []toolset.Arg{{Name: "api_key", Value: json.RawMessage(`"k-1"`), Schema: json.RawMessage(`{"type":"string"}`)}}}
	own, faults := keyed.Build()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	own.Published = &toolset.Entry{Headers: map[string]string{"X-Api-Key": "k-2"}}
	if own.Conceal(nil); fmt.Sprint(own.Settings.MaskedQuery, own.Secrets()) != "[api_key] [k-2 k-1]" {
		t.Errorf("%v, %v", own.Settings.MaskedQuery, own.Secrets())
	}
}

// TestHides bounds the secrets of a catalogue.
func TestHides(t *testing.T) {
	known := map[string]bool{}
	keyed := func(i int) *toolset.Entry {
		return &toolset.Entry{Headers: map[string]string{"X-Key": fmt.Sprint("the-secret-", i)}}
	}
	for i := range toolset.MaxPublishedSecrets {
		if !keyed(i).Hides(known) {
			t.Fatalf("secret %d is one too many", i)
		}
	}
	if keyed(-1).Hides(known) || !keyed(5).Hides(known) || len(known) != toolset.MaxPublishedSecrets {
		t.Errorf("%d secrets are known, want %d", len(known), toolset.MaxPublishedSecrets)
	}
}
