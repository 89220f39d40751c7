package openapi

import (
	"fmt"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// Document is an API as its description gives it, whatever the version:
// Swagger 2.0 and OpenAPI 3.0 to 3.2 look the same here. What a request needs
// is spelt out, defaults included; schemas stay behind the tools.
type Document struct {
	// Location is where the document was read: a path, a URL, or the name that
	// was given to an inline text. Relative server URLs are relative to it.
	Location    string
	Public      bool   // as in Server
	Format      string // as the document says: 2.0, 3.0.3, 3.1.0, …
	Title       string
	Version     string // of the API
	Description string

	Servers    []Server
	Operations []*Operation // in the order of the document
	// Lost are the operations that cannot be used, each for a reason that is among
	// Warnings. Of one without a Method it is not even known which the path has.
	Lost    []*Operation
	Schemes []*SecurityScheme
	// Files are all paths and URLs that were read, or would have been if they
	// could: what to watch for changes. The document's own is the first, unless
	// it was given as data.
	Files    []string
	Warnings []Warning

	load *loader // the trees, for the schemas
}

// Warning is something in a document that could not be taken as it stands. It
// has cost at most what it is about.
type Warning struct {
	File string // relative to the document's folder; a URL without its query
	Line int    // from 1; 0 when it is about the whole file
	Text string // what is wrong, and the rule
}

func (w Warning) String() string {
	if w.Line == 0 {
		return w.File + ": " + w.Text
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}

// Operation is one method of one path.
type Operation struct {
	ID          string // operationId, "" when the document gives none
	Method      string // in capitals
	Path        string // the template, with its {names}, without #fragment; it may have a ?query
	Summary     string
	Description string
	Deprecated  bool
	Tags        []string
	// Parameters are those of the path and of the operation, merged, without
	// the header parameters that the specification has ignored (Accept,
	// Content-Type, Authorization).
	Parameters []*Parameter
	Body       *Body // nil when the operation takes none
	Responses  []Response
	// Security lists the alternatives in order; one of them is enough. Empty
	// means that nothing is sent. The document's own are filled in.
	Security []Requirement
	// Servers are the operation's or the path's own; empty when the document's
	// hold.
	Servers []Server
	MCP     Extension // x-mcp
	File    string    // where it stands
	Line    int

	written string // the path as the document has it
}

// Key is what names an operation when it has no ID: "GET /pets/{id}", with the
// path as the document has it.
func (o *Operation) Key() string { return o.Method + " " + o.written }

// Extension is what x-mcp of an operation says about its tool. That of a path
// or of the document can switch off all tools that do not say otherwise.
type Extension struct {
	Off         bool // x-mcp: false, or enabled: false
	Name        string
	Title       string
	Description string
	// Annotations that are set here win over those of the method.
	ReadOnly, Destructive, Idempotent, OpenWorld *bool
}

// Parameter is one value outside of the body, or a header of a part.
type Parameter struct {
	Name        string // as it goes on the wire
	In          Place  // path, query, header, cookie or querystring
	Description string
	Required    bool
	Deprecated  bool
	// Style and Explode are always set, from the defaults of the place when the
	// document is silent: simple, label, matrix, form, spaceDelimited,
	// pipeDelimited, deepObject.
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat is set in Swagger 2.0 documents only, for arrays: csv,
	// ssv, tsv, pipes, multi. It wins over Style. Format of arrays within
	// arrays is taken as csv.
	CollectionFormat string
	// ContentType is set when the value is serialised by a media type and not by
	// a style ("content" instead of "schema").
	ContentType string
	// Type is what the schema says: string, integer, number, boolean, array,
	// object; "" when it says nothing or several things.
	Type string
	// Value is what the schema says the value is: its const, its only enum item
	// or its default, as text; "" when it says nothing.
	Value string

	schema *tree.Node
	at     place
}

// place is where something stands. The zero place is nowhere.
type place struct {
	file uint16
	line int32
}

// Where returns where a parameter stands; line 0 is nowhere.
func (d *Document) Where(p *Parameter) (file string, line int) {
	if p == nil || p.at.line == 0 || int(p.at.file) >= len(d.load.files) {
		return "", 0
	}
	return d.load.name(d.load.files[p.at.file].location), int(p.at.line)
}

// Place says where an argument goes.
type Place string

// The places of arguments. QueryString is OpenAPI 3.2's: the value, serialised
// by its ContentType, is the whole query.
const (
	InPath        Place = "path"
	InQuery       Place = "query"
	InHeader      Place = "header"
	InCookie      Place = "cookie"
	InQueryString Place = "querystring"
	InBody        Place = "body"
)

// Body is what an operation takes as its body.
type Body struct {
	Description string
	Required    bool
	Content     []*MediaType // in the order of the document
}

// MediaType is a body, or an answer, in one of its types.
type MediaType struct {
	Type string // as written, parameters such as charset included
	// File: the whole body is bytes, and the argument is a file (see Tool).
	File bool
	// Fields are the properties of the schema in order, for the types that are
	// made of parts (multipart/*, application/x-www-form-urlencoded); nil for
	// others. Arguments may have fields that are not among them.
	Fields []*Field

	schema *tree.Node
	items  bool // schema is that of one item of a stream (itemSchema)
}

// Field is one part of a form.
type Field struct {
	Name string // as it goes on the wire
	// File: the value is a file or, with Array, each item of it is.
	File  bool
	Array bool
	Type  string // as Parameter.Type

	// What encoding says. ContentType may list several types with commas, and
	// may have wildcards. Styled: Style, Explode and AllowReserved say how to
	// serialise the field; without, the media type's own rules hold.
	ContentType   string
	Headers       []*Parameter
	Styled        bool
	Style         string
	Explode       bool
	AllowReserved bool
	// CollectionFormat as in Parameter; it wins over all others.
	CollectionFormat string
}

// Response is what an operation may answer.
type Response struct {
	Status      string // 200, 2XX, default
	Description string
	Content     []*MediaType
	// Headers are the names of those that the document tells of.
	Headers []string
}

// Requirement is schemes that are needed together. An empty one means that the
// operation can be used without credentials.
type Requirement []SchemeUse

// SchemeUse is one scheme of a requirement.
type SchemeUse struct {
	Name   string // of a scheme in Document.Schemes; it may be missing there
	Scopes []string
}

// SecurityScheme is one way to show who calls.
type SecurityScheme struct {
	Name        string // under which requirements know it
	Type        string // apiKey, http, oauth2, openIdConnect, mutualTLS
	Description string
	In          Place  // apiKey: header, query or cookie
	Param       string // apiKey: the name of the header, parameter or cookie
	Scheme      string // http: in small letters: basic, bearer, …
	Flows       []Flow // oauth2
	OpenIDURL   string // openIdConnect
}

// Flow is one of OAuth 2's ways to a token.
type Flow struct {
	Kind     string // clientCredentials, authorizationCode, password, implicit, deviceAuthorization
	TokenURL string // may be relative to the document
	Scopes   []string
	Far      bool // as in Server
	Public   bool // likewise
}

// Server is where an API may be reached.
type Server struct {
	URL         string // may hold {variables}, may be relative to the document
	Description string
	Variables   []Variable
	// Far: all of it, or a part, was read from a URL, so that it is not the
	// operator's word. Public: at an address of the internet.
	Far, Public bool
}

// Variable is a part of a server's URL.
type Variable struct {
	Name        string
	Default     string
	Enum        []string // when not empty, nothing else is allowed
	Description string
}

// Tool is an operation as models see it.
//
// A file is an argument that is an object with data (base64) or text, and
// maybe filename and type (its media type); or a string with a data: URI or,
// with Options.Resources, the address of a resource.
type Tool struct {
	Name        string
	Title       string
	Description string
	Annotations Annotations
	// InputSchema and OutputSchema are JSON, with definitions of their own.
	// OutputSchema is nil when the operation declares no JSON answer.
	InputSchema  []byte
	OutputSchema []byte
	// Wrapped: the answer is no object, and structured content is
	// {"result": answer}.
	Wrapped bool
	// Stubbed: parts of InputSchema were left out to fit the budget. Full gives
	// all of it.
	Stubbed bool

	Operation *Operation
	// Arguments leads from the properties of InputSchema to the request, in the
	// order of the schema.
	Arguments []Argument
	// Body is the media type that the body argument is written for; nil when
	// there is none.
	Body *MediaType
	// Plain is the media type that takes the place of Body in a call that gives no
	// file; nil when Body is for all calls.
	Plain *MediaType
	// Keys leads from names within the arguments' values that had to be changed
	// back to the document's own. It holds for member names at every depth of
	// every argument, and not for the arguments' own names.
	Keys map[string]string
	// Size is the bytes that the tool takes in a list: of AppendItem.
	Size int

	doc  *Document
	opts *Options
}

// Annotations are all spelt out, since the defaults of clients differ.
type Annotations struct {
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Argument is one property of a tool's input.
type Argument struct {
	Name      string // in InputSchema
	Place     Place
	Required  bool
	Parameter *Parameter // nil when Place is InBody
	// Field is set when the body was flattened: the argument is this property
	// of it. Without, an argument with Place InBody is the body.
	Field string
}
