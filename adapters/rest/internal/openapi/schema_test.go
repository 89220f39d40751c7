package openapi

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// schemaOf returns the tool's schema of a body's schema, in a document with these components.
func schemaOf(t *testing.T, version, schema, components string) (string, []string) {
	t.Helper()
	tools, warnings := make1(t, version+"\npaths: {/a: {post: {requestBody: {content: {application/json: {schema: "+schema+"}}}}}}\ncomponents: {schemas: {"+components+"}}\n", Options{})
	var root struct {
		Properties struct{ Body json.RawMessage }
		Defs       json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(tools[0].InputSchema, &root); err != nil {
		t.Fatal(err)
	}
	s := string(root.Properties.Body)
	if root.Defs != nil {
		s += " " + string(root.Defs)
	}
	return s, warnings
}

func TestSchemas(t *testing.T) {
	const v30, v31 = "openapi: 3.0.3", "openapi: 3.1.0"
	for _, c := range []struct{ name, version, schema, want string }{
		{"nothing", v30, "{}", `{}`},
		{"true", v31, "true", `{}`},
		{"false", v31, "false", `{"not":{}}`},
		{"nullable", v30, "{type: string, nullable: true}", `{"type":["string","null"]}`},
		{"nullable without type", v30, "{nullable: true, oneOf: [{type: string}]}", `{"anyOf":[{"type":"string"},{"type":"null"}]}`},
		{"enum gets null", v30, "{type: string, nullable: true, enum: [a, b]}", `{"type":["string","null"],"enum":["a","b",null]}`},
		{"enum has each once", v30, "{type: string, enum: [a, b, a]}", `{"type":"string","enum":["a","b"]}`},
		{"numbers among strings", v30, "{type: string, enum: [1, 1.0, true, '1']}", `{"type":"string","enum":["1","1.0","true"]}`},
		{"values in quotes", v30, "{properties: {b: {type: boolean, default: 'false'}, i: {type: integer, enum: ['1', 2], default: x}, s: {type: string, default: 3}, a: {type: array, default: {}}}}",
			`{"type":"object","properties":{"b":{"type":"boolean","default":false},"i":{"type":"integer","enum":[1,2]},"s":{"type":"string","default":"3"},"a":{"type":"array","items":{}}}}`},
		{"null", v31, "{anyOf: [{type: string}, {type: 'null'}]}", `{"anyOf":[{"type":"string"},{"type":"null"}]}`},
		{"no enum", v30, "{type: string, enum: []}", `{"type":"string"}`},
		{"array without items", v30, "{type: array}", `{"type":"array","items":{}}`},
		{"tuple", v31, "{type: array, prefixItems: [{type: string}]}", `{"type":"array","prefixItems":[{"type":"string"}],"items":{}}`},
		{"old tuple", v30, "{items: [{type: string}, {type: number}]}", `{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":{}}`},
		{"old exclusive", v31, "{type: number, minimum: 1, exclusiveMinimum: true, maximum: 5, exclusiveMaximum: false}", `{"type":"number","exclusiveMinimum":1,"maximum":5}`},
		{"exclusive", v31, "{type: number, exclusiveMinimum: 0.5}", `{"type":"number","exclusiveMinimum":0.5}`},
		{"exclusive without bound", v30, "{type: number, exclusiveMinimum: true}", `{"type":"number"}`},
		{"digits", v30, "{type: integer, minimum: -9223372036854775808, maximum: 9223372036854775807}", `{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}`},
		{"wrong bounds", v30, "{type: string, minLength: -1, maxLength: many, minItems: 1.0, pattern: 7, format: [x]}", `{"type":"string","minItems":1}`},
		{"multipleOf", v30, "{type: number, multipleOf: 0.01}", `{"type":"number","multipleOf":0.01}`},
		{"multipleOf nothing", v30, "{type: number, multipleOf: 0.0}", `{"type":"number"}`},
		{"unknown types", v30, "{type: object, properties: {a: {type: int}, b: {type: Float}, c: {type: any}, d: {type: file}}}", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"number"},"c":{},"d":{"type":"string"}}}`},
		{"pattern", v30, `{type: string, pattern: '^a+$'}`, `{"type":"string","pattern":"^a+$"}`},
		{"pattern that Go does not know", v30, `{type: string, description: A word, pattern: '^(?!x).*$'}`, `{"type":"string","description":"A word (pattern: ^(?!x).*$)"}`},
		{"required as a flag", v30, "{properties: {a: {type: string, required: true}, b: {required: false}}}", `{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a"]}`},
		{"required and unknown", v30, "{properties: {a: {}}, required: [a, b, a]}", `{"type":"object","properties":{"a":{},"b":{}},"required":["a","b"]}`},
		{"readOnly", v30, "{properties: {id: {type: string, readOnly: true}, secret: {type: string, writeOnly: true}}, required: [id, secret]}", `{"type":"object","properties":{"secret":{"type":"string"}},"required":["secret"]}`},
		{"readOnly behind a reference", v30, "{properties: {id: {$ref: '#/components/schemas/ID'}}, required: [id]}", `{"type":"object","properties":{}}`},
		{"leaf", v30, "{properties: {s: {$ref: '#/components/schemas/State'}}}", `{"type":"object","properties":{"s":{"type":"string","enum":["on","off"]}}}`},
		{"allOf around a reference", v30, "{properties: {p: {description: The pet, allOf: [{$ref: '#/components/schemas/Pet'}]}}}", `{"type":"object","properties":{"p":{"$ref":"#/$defs/Pet","description":"The pet"}}} {"Pet":{"type":"object","properties":{"n":{"type":"string"}}}}`},
		{"nullable allOf", v30, "{properties: {p: {nullable: true, allOf: [{$ref: '#/components/schemas/Pet'}]}}}", `{"type":"object","properties":{"p":{"anyOf":[{"$ref":"#/$defs/Pet"},{"type":"null"}]}}} {"Pet":{"type":"object","properties":{"n":{"type":"string"}}}}`},
		{"cycle", v30, "{$ref: '#/components/schemas/Tree'}", `{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Tree"}}}} {"Tree":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Tree"}}}}}`},
		{"sibling", v31, "{properties: {p: {$ref: '#/components/schemas/Pet', description: Mine, default: {}}}}", `{"type":"object","properties":{"p":{"$ref":"#/$defs/Pet","description":"Mine","default":{}}}} {"Pet":{"type":"object","properties":{"n":{"type":"string"}}}}`},
		{"if then", v31, "{if: {required: [a]}, then: {required: [b]}}", `{"if":{"required":["a"]},"then":{"required":["b"]}}`},
		{"const", v31, "{const: 12345678901234567890}", `{"const":12345678901234567890}`},
		{"map", v30, "{type: object, additionalProperties: {type: integer}}", `{"type":"object","additionalProperties":{"type":"integer"}}`},
		{"closed", v30, "{type: object, properties: {a: {}}, additionalProperties: false}", `{"type":"object","properties":{"a":{}},"additionalProperties":false}`},
		{"closed parts", v30, "{allOf: [{$ref: '#/components/schemas/Closed'}, {type: object, properties: {b: {}}, additionalProperties: false}], additionalProperties: false}", `{"allOf":[{"type":"object","properties":{"a":{"type":"object","properties":{"x":{}},"additionalProperties":false}}},{"type":"object","properties":{"b":{}}}]}`},
		{"left out", v31, "{$id: 'https://x.example/s', $schema: 'https://x.example', $comment: c, type: string, xml: {name: a}, x-a: 1, externalDocs: {url: u}}", `{"type":"string"}`},
		{"title", v30, "{properties: {user_id: {title: User Id, type: string}, b: {title: The other one, type: string}}}", `{"type":"object","properties":{"user_id":{"type":"string"},"b":{"type":"string","description":"The other one"}}}`},
		{"default and example", v30, "{type: string, default: a, example: b}", `{"type":"string","default":"a","examples":["b"]}`},
		{"names", v30, "{type: object, properties: {'@type': {type: string}, 'a b': {}}, required: ['@type']}", `{"type":"object","properties":{"_type":{"type":"string","description":"(sent as @type)"},"a_b":{"description":"(sent as a b)"}},"required":["_type"]}`},
		{"names that others have", v30, "{type: object, properties: {'@type': {}, _type: {}}}", `{"type":"object","properties":{"_type_` + hash("@type") + `":{"description":"(sent as @type)"},"_type":{}}}`},
		{"names beside free ones", v30, "{type: object, properties: {'@type': {}}, additionalProperties: {type: string}}", `{"type":"object","properties":{"_type_` + hash("@type") + `":{"description":"(sent as @type)"}},"additionalProperties":{"type":"string"}}`},
		{"discriminator", v30, "{oneOf: [{$ref: '#/components/schemas/Pet'}, {$ref: '#/components/schemas/Tree'}], discriminator: {propertyName: kind, mapping: {pet: '#/components/schemas/Pet', tree: Tree, bush: Tree}}}",
			`{"anyOf":[{"$ref":"#/$defs/Pet","properties":{"kind":{"enum":["pet"]}},"required":["kind"]},{"$ref":"#/$defs/Tree","properties":{"kind":{"enum":["tree","bush"]}},"required":["kind"]}]} {"Pet":{"type":"object","properties":{"n":{"type":"string"}}},"Tree":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Tree"}}}}}`},
		{"loop without end", v30, "{$ref: '#/components/schemas/Animal'}",
			`{"properties":{"kind":{"type":"string"}},"anyOf":[{"$ref":"#/$defs/Cat"}]} {"Cat":{"allOf":[{"type":"object","properties":{"kind":{"type":"string"}}},{"type":"object","properties":{"purrs":{"type":"boolean"}}}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, warnings := schemaOf(t, c.version, c.schema, "Closed: {type: object, additionalProperties: false, properties: {a: {type: object, properties: {x: {}}, additionalProperties: false}}}, ID: {type: string, readOnly: true}, State: {type: string, enum: [on, off]}, Pet: {type: object, properties: {n: {type: string}}},"+
				"Tree: {properties: {kids: {type: array, items: {$ref: '#/components/schemas/Tree'}}}},"+
				"Animal: {properties: {kind: {type: string}}, oneOf: [{$ref: '#/components/schemas/Cat'}]}, Cat: {allOf: [{$ref: '#/components/schemas/Animal'}, {properties: {purrs: {type: boolean}}}]}")
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			if got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBrokenSchemas(t *testing.T) {
	for schema, want := range map[string][2]string{
		"{properties: {a: [1]}}": {`{"type":"object","properties":{"a":{}}}`, "doc.yaml:2: a list in place of a schema"},
		"{properties: [a]}":      {`{}`, "doc.yaml:2: properties is a list"},
		"{properties: {a: {$ref: '#/components/schemas/None'}}}": {`{"type":"object","properties":{"a":{}}}`, `doc.yaml:2: $ref "#/components/schemas/None": there is nothing at "None"`},
		"{properties: {a: {$ref: '#/components/schemas/Loop'}}}": {`{"type":"object","properties":{"a":{}}}`, `refers to itself`},
		"{properties: {a: {$ref: 'https://x.example/s.json'}}}":  {`{"type":"object","properties":{"a":{}}}`, "URLs are not allowed here"},
		"{properties: {a: {$ref: 'ftp://x.example/s.json'}}}":    {`{"type":"object","properties":{"a":{}}}`, "only http, https and files"},
		"{properties: {a: {$ref: '#nothing'}}}":                  {`{"type":"object","properties":{"a":{}}}`, "no such anchor"},
	} {
		got, warnings := schemaOf(t, "openapi: 3.1.0", schema, "Loop: {$ref: '#/components/schemas/Loop2'}, Loop2: {$ref: '#/components/schemas/Loop'}")
		same(t, got, strings.Replace(want[0], `{"type":"object","properties":[]}`, "{}", 1))
		warned(t, warnings, want[1])
		same(t, len(warnings), 1)
	}
}

func TestAnchors(t *testing.T) {
	got, warnings := schemaOf(t, "openapi: 3.1.0", "{properties: {a: {$ref: '#here'}, b: {$ref: 'https://x.example/b'}, c: {$ref: 'https://x.example/b#/properties/d'}}}",
		"A: {$anchor: here, type: string}, B: {$id: 'https://x.example/b', properties: {d: {type: number}}}")
	same(t, warnings, []string(nil))
	same(t, got, `{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/b"},"c":{"type":"number"}}} {"b":{"type":"object","properties":{"d":{"type":"number"}}}}`)
}

// References in a schema with an $id start from there, and from the document's root where that leads to nothing.
func TestSchemasWithIDs(t *testing.T) {
	got, warnings := schemaOf(t, "openapi: 3.1.0", "{properties: {a: {$ref: '#/components/schemas/A'}, b: {$ref: '#/components/schemas/B'}}}",
		`A: {$id: 'https://x.example/s/a', properties: {p: {$ref: '#/$defs/in'}, q: {$ref: '#name'}, r: {$ref: b}, s: {$ref: 'b#name'}, t: {$ref: '#/components/schemas/C'}, u: {$ref: '#'}}, $defs: {in: {type: integer}, n: {$anchor: name, type: boolean}}},
		B: {$id: 'https://x.example/s/b', properties: {p: {$ref: '#/$defs/in'}, q: {$ref: '#name'}}, $defs: {in: {type: string}, n: {$anchor: name, type: number}}},
		C: {type: 'null'}`)
	same(t, warnings, []string(nil))
	same(t, got, `{"type":"object","properties":{"a":{"$ref":"#/$defs/A"},"b":{"$ref":"#/$defs/b"}}} `+
		`{"A":{"type":"object","properties":{"p":{"type":"integer"},"q":{"type":"boolean"},"r":{"$ref":"#/$defs/b"},"s":{"type":"number"},"t":{"type":"null"},"u":{"$ref":"#/$defs/A"}}},`+
		`"b":{"type":"object","properties":{"p":{"type":"string"},"q":{"type":"number"}}}}`)
}

// A $dynamicRef is followed if it can mean one schema only.
func TestDynamicReferences(t *testing.T) {
	got, warnings := schemaOf(t, "openapi: 3.1.0", "{$ref: '#/components/schemas/Tree'}", "Tree: {$dynamicAnchor: node, properties: {v: {type: integer}, next: {$dynamicRef: '#node'}}}")
	same(t, warnings, []string(nil))
	same(t, got, `{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/Tree"}}} {"Tree":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/Tree"}}}}`)
	got, warnings = schemaOf(t, "openapi: 3.1.0", "{$ref: '#/components/schemas/Pets'}",
		"Page: {$id: page, properties: {items: {type: array, items: {$dynamicRef: '#T'}}}, $defs: {T: {$dynamicAnchor: T, not: {}}}}, Pets: {$id: pets, $ref: page, $defs: {T: {$dynamicAnchor: T, type: string}}}")
	warned(t, warnings, `$dynamicRef "#T" can mean several schemas: every value is allowed`)
	same(t, got, `{"type":"object","properties":{"items":{"type":"array","items":{}}}}`)
}

func TestKeysLeadBack(t *testing.T) {
	tools, _ := make1(t, `
openapi: 3.0.0
paths:
  /a:
    post:
      requestBody: {content: {application/json: {schema: {properties: {'@id': {}, deep: {properties: {'a b': {}, 'ключ': {}}}}}}}}
`, Options{})
	same(t, tools[0].Keys, map[string]string{"_id": "@id", "a_b": "a b", "arg_1de36a32": "ключ"})
}

func TestOutputs(t *testing.T) {
	for _, c := range []struct {
		responses, want string
		wrapped         bool
		o               Options
	}{
		{responses: "{200: {content: {application/json: {schema: {type: object, required: [a], properties: {a: {type: string, enum: [x, y]}, w: {writeOnly: true}}, additionalProperties: false}}}}}",
			want: `{"type":"object","properties":{"a":{"type":["string","null"],"examples":["x","y"]}}}`},
		{responses: "{200: {content: {application/json: {schema: {type: object, required: [a], properties: {a: {type: string, enum: [x, y]}}, additionalProperties: false}}}}}", o: Options{StrictOutput: true},
			want: `{"type":"object","properties":{"a":{"type":"string","enum":["x","y"]}},"required":["a"],"additionalProperties":false}`},
		{responses: "{200: {content: {application/json: {schema: {type: array, items: {type: string}}}}}}", wrapped: true,
			want: `{"type":"object","properties":{"result":{"type":["array","null"],"items":{"type":["string","null"]}}}}`},
		{responses: "{200: {content: {application/json: {schema: {type: object, properties: {a: {type: integer, format: unixtime}, b: {type: string, format: date-time}}}}}}}",
			want: `{"type":"object","properties":{"a":{"type":["integer","null"]},"b":{"type":["string","null"]}}}`}, // answers are often of no format
		{responses: "{200: {content: {application/json: {schema: {type: object, properties: {a: {type: integer, format: unixtime}, b: {type: string, format: date-time}}}}}}}", o: Options{StrictOutput: true},
			want: `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","format":"date-time"}}}`},
		{responses: "{201: {content: {application/json: {schema: {type: object}}}}, 200: {content: {text/plain: {}}}, 202: {content: {application/json: {schema: {type: string}}}}}", want: `{"type":"object"}`},
		{responses: "{2XX: {content: {application/problem+json: {schema: {}}}}}", wrapped: true, want: `{"type":"object","properties":{"result":{}}}`},
		{responses: "{default: {content: {application/json: {schema: {type: object}}}}}"},
		{responses: "{404: {content: {application/json: {schema: {type: object}}}}}"},
		{responses: "{200: {content: {application/json: {schema: {type: object}}}}}", o: Options{NoOutput: true}},
		{responses: "{200: {content: {text/event-stream: {itemSchema: {type: object}}, application/jsonl: {itemSchema: {type: object}}}}}"},
		{responses: "{200: {content: {application/json: {schema: {allOf: [{type: object, properties: {a: {type: number}}}]}}}}}",
			want: `{"type":"object","allOf":[{"type":["object","null"],"properties":{"a":{"type":["number","null"]}}}]}`},
	} {
		tools, _ := make1(t, "openapi: 3.2.0\npaths: {/a: {get: {responses: "+c.responses+"}}}\n", c.o)
		same(t, string(tools[0].OutputSchema), c.want)
		same(t, tools[0].Wrapped, c.wrapped)
	}
}

func TestFlattenBody(t *testing.T) {
	o := Options{FlattenBody: true}
	tools, _ := make1(t, `
openapi: 3.0.0
paths:
  /a/{id}:
    put:
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {required: [n], properties: {n: {type: string}, 'x y': {type: integer}, ro: {readOnly: true}}}}}}
    post:
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {properties: {id: {type: string}}}}}}
`, o)
	same(t, string(tools[0].InputSchema), `{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"string"},"x_y":{"type":"integer","description":"(sent as x y)"}},"required":["id","n"],"additionalProperties":false}`)
	same(t, tools[0].Arguments[1:], []Argument{{Name: "n", Place: InBody, Required: true, Field: "n"}, {Name: "x_y", Place: InBody, Field: "x y"}})
	same(t, tools[1].Arguments[1:], []Argument{{Name: "body", Place: InBody, Required: true}}) // id would be there twice
}

func TestBudget(t *testing.T) {
	var props, schemas strings.Builder
	for i := range 40 {
		props.WriteString("o" + itoa(i) + ": {$ref: '#/components/schemas/S" + itoa(i) + "'}, ")
		schemas.WriteString("S" + itoa(i) + ": {type: object, description: Number " + itoa(i) + ", properties: {")
		for j := range 30 {
			schemas.WriteString("p" + itoa(j) + ": {type: string, description: some words about it}, ")
		}
		schemas.WriteString("}}, ")
	}
	doc := "openapi: 3.0.0\npaths: {/a: {post: {requestBody: {content: {application/json: {schema: {required: [must], properties: {" + props.String() + "must: {$ref: '#/components/schemas/Must'}}}}}}}}}\n" +
		"components: {schemas: {" + schemas.String() + "Must: {type: object, properties: {a: {type: string}, l: {type: array, items: {$ref: '#/components/schemas/S0'}}}}}}\n"
	unlimited, _ := make1(t, doc, Options{Budget: -1})
	same(t, unlimited[0].Stubbed, false)
	full := string(unlimited[0].InputSchema)
	for _, budget := range []int{6 << 10, 8 << 10, 16 << 10} {
		tools, warnings := make1(t, doc, Options{Budget: budget})
		tool := tools[0]
		if tool.Size > budget || tool.Size < budget/2 || !tool.Stubbed || len(warnings) > 0 {
			t.Errorf("budget %d: takes %d, %v", budget, tool.Size, warnings)
		}
		// Required properties come first, and every definition has a type.
		for _, want := range []string{`"S39":{"type":"object"`, `"Must":{"type":"object","properties":{"a"`} {
			if !strings.Contains(string(tool.InputSchema), want) {
				t.Errorf("budget %d: %q is missing in %s", budget, want, tool.InputSchema)
			}
		}
		if strings.Count(full, `"p29"`) != 40 {
			t.Errorf("not all is in %.500s", full)
		}
		if string(tool.InputSchema) == full {
			t.Error("nothing was left out")
		}
	}
}

// A list of values that exceeds the budget alone becomes a hint.
func TestLongEnum(t *testing.T) {
	var values []string
	for i := range 3000 {
		values = append(values, "value"+itoa(i))
	}
	doc := "openapi: 3.0.0\npaths: {/a: {get: {parameters: [{name: a, in: query, schema: {type: string, enum: [" + strings.Join(values, ", ") + "]}}]}}}\n"
	tools, warnings := make1(t, doc, Options{})
	same(t, warnings, []string(nil))
	if s := string(tools[0].InputSchema); len(s) > 1000 || !strings.Contains(s, `"examples":["value0",`) {
		t.Error(s)
	}
	tools, _ = make1(t, doc, Options{Budget: -1})
	if s := string(tools[0].InputSchema); !strings.Contains(s, `"enum":["value0",`) || !strings.Contains(s, `"value2999"]`) {
		t.Errorf("not all is in %.200s", s)
	}
}

// Tools is safe for concurrent use. Each call of Tools reports the faults of schemas.
func TestToolsAgainAndAgain(t *testing.T) {
	doc := load(t, "openapi: 3.0.0\npaths: {/a: {post: {requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/A'}}}}}}}\n"+
		"components: {schemas: {A: {properties: {a: {$ref: '#/components/schemas/A'}, b: {$ref: '#/components/schemas/B'}, c: {description: "+strings.Repeat("x", 900)+", properties: {d: {type: string}}}}}}}\n")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			tools, warnings := Tools(doc, Options{Budget: 700})
			if len(warnings) != 1 || !strings.Contains(warnings[0].Text, `there is nothing at "B"`) {
				t.Errorf("warnings are %v", warnings)
			}
			whole, _ := Tools(doc, Options{Budget: -1})
			if !tools[0].Stubbed || !strings.Contains(string(whole[0].InputSchema), `"d":{"type":"string"}`) {
				t.Errorf("%t %s", tools[0].Stubbed, whole[0].InputSchema)
			}
		})
	}
	wg.Wait()
}
