package openapi

import (
	"fmt"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Document is the description of an API, the same for Swagger 2.0 and OpenAPI 3.0 to 3.2. It has
// everything that requests need, including defaults. Schemas are in the tools.
type Document struct {
	// Location is the source of the document: a path, a URL, or the name of an inline text.
	// Relative server URLs resolve against Location.
	Location    string
	Public      bool   // as in Server
	Format      string // the document's version: 2.0, 3.0.3, 3.1.0, …
	Title       string
	Version     string // of the API
	Description string

	Servers    []Server
	Operations []*Operation // in the order of the document
	// Lost are the unusable operations. Warnings say why. An entry without a Method stands for a
	// path whose operations are unknown.
	Lost    []*Operation
	Schemes []*SecurityScheme
	// Files are all paths and URLs that Load read or tried to read, to watch for changes. The first
	// is the document's own, unless Source.Data was set.
	Files    []string
	Warnings []Warning

	load *loader // the trees of the schemas
}

// Warning is a fault in a document that cost no more than the faulty part.
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
	Path        string // the template with {names}, without #fragment; may have a ?query
	Summary     string
	Description string
	Deprecated  bool
	Tags        []string
	// Parameters are those of the path and of the operation, merged. They exclude headers that the
	// specification ignores (Accept, Content-Type, Authorization).
	Parameters []*Parameter
	Body       *Body // nil without a body
	Responses  []Response
	// Security lists the alternatives in order; one of them is enough. Empty means that no credentials
	// are needed. Nil means that neither the operation nor the document has security.
	Security []Requirement
	// Servers are those of the operation or the path. If empty, the document's apply.
	Servers []Server
	MCP     Extension // x-mcp
	File    string    // the file with the operation, as in Warning
	Line    int

	written string // the path as the document has it
}

// Key identifies an operation without an ID: "GET /pets/{id}", with the path as in the document.
func (o *Operation) Key() string { return o.Method + " " + o.written }

// Extension is the x-mcp of an operation. The x-mcp of a path or of the document only switches off
// operations without their own x-mcp.
type Extension struct {
	Off         bool // x-mcp: false, or enabled: false
	Name        string
	Title       string
	Description string
	// These annotations, unless nil, win over those of the method.
	ReadOnly, Destructive, Idempotent, OpenWorld *bool
}

// Parameter is a value outside of the body, or a header of a part.
type Parameter struct {
	Name        string // the name in the request
	In          Place  // path, query, header, cookie or querystring
	Description string
	Required    bool
	Deprecated  bool
	// Style and Explode have the defaults of the place if the document does not set them. Styles are
	// simple, label, matrix, form, spaceDelimited, pipeDelimited, deepObject and cookie.
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat is set for an array in a Swagger 2.0 document: csv, ssv, tsv, pipes or multi.
	// It wins over Style. An array within the array is csv.
	CollectionFormat string
	// ContentType, unless empty, is the media type in which the value is written. Style then does not
	// apply.
	ContentType string
	// Type is the only type that the schema allows: string, integer, number, boolean, array or
	// object. It is empty if there is none or more than one.
	Type string
	// Value is the const, the only enum item or the default of the schema, as text; or empty.
	Value string

	schema *tree.Node
	at     place
}

// place is a position in a file. The zero value means no position.
type place struct {
	file uint16
	line int32
}

// Where returns the position of a parameter in the document. The line is 0 if there is none.
func (d *Document) Where(p *Parameter) (file string, line int) {
	if p == nil || p.at.line == 0 || int(p.at.file) >= len(d.load.files) {
		return "", 0
	}
	return d.load.name(d.load.files[p.at.file].location), int(p.at.line)
}

// Place is the place of an argument in the request.
type Place string

// These are the places of arguments. With InQueryString (OpenAPI 3.2), the value, written in its
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
	// File says that the body is the bytes of one file, and the argument is a file (see Tool).
	File bool
	// Fields are the properties of a form's schema, in order. They are nil for other types than
	// multipart/* and application/x-www-form-urlencoded. Arguments may have further fields.
	Fields []*Field
	// Items are the parts of a multipart body that is an array, by position. The last one stands for
	// all further parts. Items is nil for other bodies.
	Items []*Field

	schema *tree.Node
	items  bool // the document describes one item of a stream (itemSchema)
}

// Field is one part of a form.
type Field struct {
	Name string // the name in the request
	// File says that the value is a file or, with Array, that each item of the value is a file.
	File  bool
	Array bool
	Type  string // as in Parameter

	// The document's encoding has these fields. ContentType may list several types, with commas and
	// wildcards. If Styled is true, Style, Explode and AllowReserved apply to the field instead of the
	// media type's own rules.
	ContentType   string
	Headers       []*Parameter
	Styled        bool
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat is as in Parameter. It wins over the fields above.
	CollectionFormat string
}

// Response is a possible answer of an operation.
type Response struct {
	Status      string // such as 200, 2XX or default
	Description string
	Content     []*MediaType
	// Headers are the canonical names of the declared headers, up to maxHeaders.
	Headers []string
}

// Requirement is a set of schemes that are needed together. An empty Requirement allows requests
// without credentials.
type Requirement []SchemeUse

// SchemeUse is one scheme of a requirement.
type SchemeUse struct {
	Name   string // of a scheme; Document.Schemes may lack it
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
	Public   bool // as in Server
}

// Server is an address of an API.
type Server struct {
	URL         string // may contain {variables}, and be relative to the document
	Description string
	Variables   []Variable
	// Remote says that a part of the address was read from a URL, so that the operator did not write
	// it. Public says that this URL is at a public address.
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
// A file as an argument is an object with data (base64) or text, and optionally with filename and
// type (a media type). It may also be a string with a data: URI or, with Options.Resources, the
// address of a resource.
type Tool struct {
	Name        string
	Title       string
	Description string
	Annotations Annotations
	// InputSchema and OutputSchema are self-contained JSON. OutputSchema is nil if the operation
	// declares no JSON answer.
	InputSchema  []byte
	OutputSchema []byte
	// Wrapped says that the answer is no object, so that structured content is {"result": answer}.
	Wrapped bool
	// Stubbed says that InputSchema omits parts to fit the budget.
	Stubbed bool

	Operation *Operation
	// Arguments maps the properties of InputSchema to the request, in the order of the schema.
	Arguments []Argument
	// Body is the media type of the body. It is nil if no argument is in the body.
	Body *MediaType
	// Plain replaces Body in calls without a file. If it is nil, Body applies to all calls.
	Plain *MediaType
	// Keys maps changed names of members to the document's. It applies to members at every depth of
	// every argument, but not to the names of the arguments themselves.
	Keys map[string]string
	// Size is how many bytes AppendItem appends.
	Size int

	doc  *Document
	opts *Options
}

// Annotations are the hints about a tool's effects. A list shows all of them, since the defaults of
// clients differ.
type Annotations struct {
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Argument is a property of a tool's input.
type Argument struct {
	Name      string // in InputSchema
	Place     Place
	Required  bool
	Parameter *Parameter // nil if Place is InBody
	// Field is the property of the body that the argument is. If it is empty and Place is InBody, the
	// argument is the whole body.
	Field string
}
