package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options say how to reach one API. A field with the zero value has a default.
type Options struct {
	// Name is the API's name in file addresses: rest://NAME/path.
	Name string
	// Document describes the API: its servers and security schemes. It is nil if all tools are
	// hand-written; then BaseURL is required.
	Document *openapi.Document
	// BaseURL replaces the servers that the document and its operations name.
	BaseURL string
	// Variables are values for variables in server addresses.
	Variables map[string]string
	// HTTP has the settings of connections, such as certificates and the proxy. Its URL and Headers
	// are ignored.
	HTTP remote.Config
	// Headers are sent with every request. They win over arguments.
	Headers map[string]string
	// Credentials are keyed by the names of the document's security schemes. Default is for
	// operations that get none of these, unless the document has schemes and the operation needs
	// none.
	Credentials map[string]Credential
	Default     *Credential
	// Secrets are further texts to mask in results and in the log.
	Secrets []string
	// Trusted are further origins, such as https://uploads.example.com, that get credentials,
	// Headers and forwarded headers.
	Trusted []string
	// Forward lists the callers' headers to pass on, each as NAME or NAME as OTHER. They win over
	// credentials.
	Forward []string
	// Withheld are headers that neither arguments nor settings of a tool may set.
	Withheld []string

	// Timeout bounds a call with all its attempts. 0 means 30 s.
	Timeout time.Duration `default:"30s"`
	// MaxTimeout bounds Timeout and that of a tool. 0 means no limit.
	MaxTimeout time.Duration
	// Attempts bounds how often a repeatable request is sent. 0 means 3.
	Attempts int `default:"3"`
	Limits   Limits
	// Breaker says when a failing host gets no more requests. Failures are requests without an
	// answer, and the statuses 502, 503 and 504. All attempts of a call count as one.
	Breaker breaker.Options
	// CacheBytes is the size of the cache for answers to GET. There is no cache if it is 0.
	CacheBytes int

	// Budget bounds the requests. Sources of the same API share it. If it is nil, the source has its own, by
	// Limits, Breaker and CacheBytes.
	Budget *Budget

	// Schemas checks arguments. Sources may share it. If it is nil, the source has its own.
	Schemas *validate.Cache
	Log     *slog.Logger // nil discards
}

// Fill sets defaults in place of zero values.
func (o *Options) Fill() {
	setting.Fill(o)
	setting.Fill(&o.Limits)
}

// Limits bound the calls of an API.
type Limits struct {
	// Answer bounds the text in one result. 0 means 100 KiB.
	Answer setting.Size `yaml:"answer" default:"100KiB"`
	// Body bounds what is read of one answer, decompressed. 0 means 8 MiB.
	Body setting.Size `yaml:"body" default:"8MiB"`
	// File bounds one file in arguments. 0 means 10 MiB.
	File setting.Size `yaml:"file" min:"1B" default:"10MiB"`
	// Rate bounds the requests. The zero Rate means no limit. A Burst of 0 means the requests of one second.
	Rate limits.Rate `yaml:"rate"`
	// Concurrent bounds the calls at a time. 0 means 64.
	Concurrent int `yaml:"concurrent" default:"64"`
}

// Settings are the settings of one tool's calls. Zero values mean those of Options.
type Settings struct {
	Timeout time.Duration // of a call with all its attempts; Options.MaxTimeout bounds it
	// Attempts bounds how often a repeatable request is sent. Repeat makes a request repeatable whose method is
	// not idempotent.
	Attempts int
	Repeat   bool
	// Uncached says that answers neither come from the cache nor go into it.
	Uncached bool
	// KeepFor is how long an answer stays fresh if the answer does not say so itself.
	KeepFor time.Duration
	// Failure is a gjson path to the message of an error answer. If nothing is there, the answer is
	// shown as usual.
	Failure string
	// FailureIf is a gjson path. An answer with a success status is an error if its value there is
	// not false, null, 0 or empty.
	FailureIf string
	// Bounded says that Failure, FailureIf and the call's Result have the same limits as paths from
	// models.
	Bounded bool
	// MaxAnswer bounds the text of a result, in bytes.
	MaxAnswer int
	// Masked are canonical names of headers whose values a plan hides, whatever their source.
	Masked []string
	// MaskedQuery are query parameters whose values a plan hides.
	MaskedQuery []string
	// Sets says that the configuration adds texts to the tool's requests that may be secrets, such
	// as headers.
	Sets bool
}

// Call is one call of a tool.
type Call struct {
	Tool *openapi.Tool
	Args []byte // a JSON object, or nothing
	// Header has the caller's headers. Only those in Options.Forward are passed on.
	Header http.Header
	// Subject is the caller's token, to exchange for a token of the API; it may be nil.
	Subject *identity.Subject
	// Trace are headers of the call's trace. They do not replace headers of the request, and the
	// cache ignores them.
	Trace http.Header
	// Result is a gjson path of the configuration to the part of the answer that is the result. Pick
	// is a gjson path of the model to a part of that part. Empty selects all.
	Result, Pick string
	// PickName is the name of the argument with Pick; empty if the tool has no such argument.
	PickName string
	// Progress, unless nil, is called with each part of a stream. n counts from 1.
	Progress func(n int, text string)
	// Rewrite, unless nil, turns checked arguments into arguments of the tool's operation: the
	// configuration may hide or rename arguments, or make a body of them. Clients see an error that
	// is a Refusal.
	Rewrite func(args []byte) ([]byte, error)
	// Resource returns the call that reads a resource, for arguments that are files. It is nil if
	// there are no resources. Clients see an error that is a Refusal.
	Resource func(uri string) (*Call, error)
	Settings Settings

	bare bool // the result shows the body only, and no headers
}

var errClosed = errors.New("the source is closed")

const defaultSchemas = 256

// errTimeout ends a call that takes too long.
var errTimeout = errors.New("no answer in time")

// Fault says why a call got no answer. Clients may see the text.
type Fault struct {
	Text  string
	After time.Duration // when to try again; 0 if unknown
}

func (f *Fault) Error() string {
	if f.After <= 0 {
		return f.Text
	}
	return f.Text + "; try again in " + seconds(f.After)
}

// seconds returns a duration as text, in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d s", max(1, int(math.Ceil(d.Seconds()))))
}
