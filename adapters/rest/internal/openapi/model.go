package openapi

import (
	"fmt"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Document is the description of an API. It is the same for Swagger 2.0 and OpenAPI 3.0 to 3.2. It
// has everything that requests need, including defaults; schemas are in the tools.
type Document struct {
	// Location is the source of the document: a path, a URL, or the name of an inline text.
	// Relative server URLs resolve against it.
	Location    string
	Public      bool   // as in Server
	Format      string // the document's version: 2.0, 3.0.3, 3.1.0, …
	Title       string
	Version     string // of the API
	Description string

	Servers    []Server
	Operations []*Operation // in the order of the document
	// Lost are the unusable operations; Warnings say why. An entry without a Method stands for a
	// path whose operations are unknown.
	Lost    []*Operation
	Schemes []*SecurityScheme
	// Files are all paths and URLs that were read or should have been: the ones to watch for
	// changes. The first is the document's own, unless it was given as data.
	Files    []string
	Warnings []Warning

	load *loader // the trees of the schemas
}

// Warning is a fault in a document. It cost at most the part that it is about.
type Warning struct {
	File string // relative to the document's folder; a URL without its query
	Line int    // from 1; 0 for the whole file
	Text string // the fault and the rule
}

func (w Warning) String() string {
	if w.Line == 0 {
		return w.File + ": " + w.Text
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}

// Operation is one method of one path.
type Operation struct {
	ID          string // operationId; empty if there is none
	Method      string // in capitals
	Path        string // the template with {names}, without #fragment; it may have a ?query
	Summary     string
	Description string
	Deprecated  bool
	Tags        []string
	// Parameters are those of the path and of the operation, merged. They exclude headers that the
	// specification ignores (Accept, Content-Type, Authorization).
	Parameters []*Parameter
	Body       *Body // nil without a body
	Responses  []Response
	// Security lists the alternatives in order; one is enough. Empty means that nothing is needed,
	// and nil that nothing is said. The document's own security is filled in.
	Security []Requirement
	// Servers are those of the operation or the path; empty if the document's apply.
	Servers []Server
	MCP     Extension // x-mcp
	File    string    // its file
	Line    int

	written string // the path as the document has it
}

// Key identifies an operation without an ID: "GET /pets/{id}", with the path as in the document.
func (o *Operation) Key() string { return o.Method + " " + o.written }

// Extension is the x-mcp of an operation. The x-mcp of a path or of the document only switches off
// tools without one of their own.
type Extension struct {
	Off         bool // x-mcp: false, or enabled: false
	Name        string
	Title       string
	Description string
	// Annotations that are set win over those of the method.
	ReadOnly, Destructive, Idempotent, OpenWorld *bool
}

// Parameter is a value outside of the body, or a header of a part.
type Parameter struct {
	Name        string // the name in the request
	In          Place  // path, query, header, cookie or querystring
	Description string
	Required    bool
	Deprecated  bool
	// Style and Explode are always set; without them in the document, to the defaults of the place.
	// Styles are simple, label, matrix, form, spaceDelimited, pipeDelimited, deepObject.
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat is set for arrays of Swagger 2.0 documents: csv, ssv, tsv, pipes, multi. It
	// wins over Style. Arrays within arrays are csv.
	CollectionFormat string
	// ContentType is set if a media type serialises the value instead of a style ("content" instead
	// of "schema").
	ContentType string
	// Type is the type in the schema: string, integer, number, boolean, array or object; empty for
	// none or several.
	Type string
	// Value is the value in the schema as text: its const, its only enum item or its default; empty
	// for none.
	Value string

	schema *tree.Node
	at     place
}

// place is a position in a file. The zero place is none.
type place struct {
	file uint16
	line int32
}

// Where returns the position of a parameter; line 0 is none.
func (d *Document) Where(p *Parameter) (file string, line int) {
	if p == nil || p.at.line == 0 || int(p.at.file) >= len(d.load.files) {
		return "", 0
	}
	return d.load.name(d.load.files[p.at.file].location), int(p.at.line)
}

// Place is the place of an argument in the request.
type Place string

// These are the places of arguments. QueryString is OpenAPI 3.2's: the value, serialised by its
// ContentType, is the whole query.
const (
	InPath        Place = "path"
	InQuery       Place = "query"
	InHeader      Place = "header"
	InCookie      Place = "cookie"
	InQueryString Place = "querystring"
	InBody        Place = "body"
)

// Body is the body of an operation's requests.
type Body struct {
	Description string
	Required    bool
	Content     []*MediaType // in the order of the document
}

// MediaType is one type of a body or an answer.
type MediaType struct {
	Type string // as written, with parameters such as charset
	// File: the whole body is raw bytes, and the argument is a file (see Tool).
	File bool
	// Fields are the properties of the schema in order, for types with parts (multipart/*,
	// application/x-www-form-urlencoded); nil for others. Arguments may have other fields too.
	Fields []*Field
	// Items are the parts of a multipart body that is an array, by position; the last one is for all that follow. nil for
	// other bodies.
	Items []*Field

	schema *tree.Node
	items  bool // the document describes one item of a stream (itemSchema)
}

// Field is one part of a form.
type Field struct {
	Name string // the name in the request
	// File: the value is a file or, with Array, each item of it is.
	File  bool
	Array bool
	Type  string // as in Parameter

	// These come from encoding. ContentType may list several types with commas and wildcards. If
	// Styled is true, Style, Explode and AllowReserved serialise the field in place of the media
	// type's own rules.
	ContentType   string
	Headers       []*Parameter
	Styled        bool
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat is as in Parameter; it wins over the others.
	CollectionFormat string
}

// Response is a possible answer of an operation.
type Response struct {
	Status      string // 200, 2XX, default
	Description string
	Content     []*MediaType
	// Headers are the names of the declared headers.
	Headers []string
}

// Requirement is a set of schemes that are needed together. An empty one allows requests without
// credentials.
type Requirement []SchemeUse

// SchemeUse is one scheme of a requirement.
type SchemeUse struct {
	Name   string // of a scheme in Document.Schemes, which may be missing
	Scopes []string
}

// SecurityScheme is a way to authenticate.
type SecurityScheme struct {
	Name        string // its name in requirements
	Type        string // apiKey, http, oauth2, openIdConnect, mutualTLS
	Description string
	In          Place  // apiKey: header, query or cookie
	Param       string // apiKey: the name of the header, parameter or cookie
	Scheme      string // http: in lower case: basic, bearer, …
	Flows       []Flow // oauth2
	OpenIDURL   string // openIdConnect
}

// Flow is an OAuth 2 flow.
type Flow struct {
	Kind     string // clientCredentials, authorizationCode, password, implicit, deviceAuthorization
	TokenURL string // may be relative to the document
	Scopes   []string
	Remote   bool // as in Server
	Public   bool // likewise
}

// Server is an address of an API.
type Server struct {
	URL         string // may contain {variables}, and be relative to the document
	Description string
	Variables   []Variable
	// Remote: some part was read from a URL, so the operator did not write it. Public: that URL is
	// at a public address.
	Remote, Public bool
}

// Variable is a variable in a server's URL.
type Variable struct {
	Name        string
	Default     string
	Enum        []string // the allowed values; empty allows all
	Description string
}

// Tool is an operation as models see it.
//
// An argument that is a file is an object with data (base64) or text, and optionally filename and
// type (its media type). Or it is a string with a data: URI or, with Options.Resources, the address
// of a resource.
type Tool struct {
	Name        string
	Title       string
	Description string
	Annotations Annotations
	// InputSchema and OutputSchema are self-contained JSON. OutputSchema is nil if the operation
	// declares no JSON answer.
	InputSchema  []byte
	OutputSchema []byte
	// Wrapped: the answer is no object, so structured content is {"result": answer}.
	Wrapped bool
	// Stubbed: parts of InputSchema were omitted to fit the budget. Full returns all of it.
	Stubbed bool

	Operation *Operation
	// Arguments maps the properties of InputSchema to the request, in the order of the schema.
	Arguments []Argument
	// Body is the media type of the body argument; nil without one.
	Body *MediaType
	// Plain is the media type that replaces Body in calls without a file; nil if Body is for all
	// calls.
	Plain *MediaType
	// Keys maps changed names within the arguments' values to the document's own. It applies to
	// member names at every depth of every argument, but not to the arguments' own names.
	Keys map[string]string
	// Size is the size of the tool's entry in a list, in bytes: that of AppendItem.
	Size int

	doc  *Document
	opts *Options
}

// Annotations are all set, since the defaults of clients differ.
type Annotations struct {
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Argument is a property of a tool's input.
type Argument struct {
	Name      string // in InputSchema
	Place     Place
	Required  bool
	Parameter *Parameter // nil if Place is InBody
	// Field is set for a flattened body: the argument is this property of it. Without Field, an
	// argument with Place InBody is the whole body.
	Field string
}
