package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// errSilent means that --timeout expired before there was a session.
var errSilent = errors.New("the server was not ready in time (--timeout)")

// explain adds an exit code and a text for the user to an error.
func (c *clientFlags) explain(ctx context.Context, err error) error {
	if _, done := errors.AsType[exit.Error](err); done {
		return err
	}
	if ctx.Err() != nil {
		return exit.With(exit.Interrupted, errors.New("interrupted"))
	}
	if errors.Is(err, errSilent) {
		return exit.With(exit.Timeout, err)
	}
	hint := ""
	if !c.verbose && !strings.Contains(err.Error(), "\n") && !strings.Contains(err.Error(), "sign in: ") { // such as the last lines on stderr
		hint = " (--verbose shows more)"
	}
	if c.address != "" {
		if flags.ForURL(err.Error()) != err.Error() {
			hint = ""
		}
		err = forURL{err, c.address, c.name}
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return exit.With(exit.Server, fmt.Errorf("%w%s", err, hint))
	}
	switch faultOf(e) {
	case "":
		return exit.With(exit.Answer, &answerError{e})
	case "upstream_timeout":
		return exit.With(exit.Timeout, err)
	}
	return exit.With(exit.Server, fmt.Errorf("%w%s", err, hint))
}

// forURL is an error for a user who gave a URL: the text has the URL in place of the server's name, and flags in place
// of settings.
type forURL struct {
	error
	address, name string
}

// ofBridge matches the error of a bridge that could not open the server behind it.
var ofBridge = regexp.MustCompile(`^(?:Streamable HTTP: )?it refused to initialize(?: \(HTTP \d+\))?: (?s:(server [a-z0-9-]+: .*))$`)

// endpoints matches the answer of a bridge to a path where it has no MCP endpoint.
var endpoints = regexp.MustCompile(`MCP endpoints: ([^;]+);`)

// doubtful matches errors of servers that perhaps do not speak MCP.
var doubtful = regexp.MustCompile(`^it failed \(HTTP \d+\)$|^the connection to it broke`)

func (f forURL) Error() string {
	text := flags.ForURL(f.error.Error())
	why, ours := strings.CutPrefix(text, "server "+f.name+": ")
	if !ours {
		return text
	}
	why = strings.TrimPrefix(why, "handshake: ")
	switch inner := ofBridge.FindStringSubmatch(why); {
	case inner != nil:
		return inner[1]
	case endpoints.MatchString(why):
		why = "nothing is at this address; MCP is at " + endpoints.FindStringSubmatch(why)[1]
	case strings.HasSuffix(why, "connect: connection refused"):
		why = "nothing listens there: is the server running?"
	case doubtful.MatchString(why):
		why += ": is it an MCP server?"
	}
	return f.address + ": " + why
}

func (f forURL) Unwrap() error { return f.error }

// faultOf returns data.bridge of an error of the bridge, or "" for an error of the server.
func faultOf(e *jsonrpc.Error) string { return gjson.GetBytes(e.Data, "bridge").String() }

// answerError formats a server's JSON-RPC error for the user.
type answerError struct{ err *jsonrpc.Error }

const maxShownData = 500 // maximum bytes of an error's data in a message; --json-output shows all of it

func (a *answerError) Error() string {
	s := fmt.Sprintf("the server answered with error %d: %s", a.err.Code, a.err.Message)
	if len(a.err.Data) > maxShownData {
		s += "\n" + string(a.err.Data[:maxShownData]) + "…"
	} else if len(a.err.Data) > 0 {
		s += "\n" + string(a.err.Data)
	}
	return s
}

func (a *answerError) Unwrap() error { return a.err }

// jsonError prints an error as a JSON document.
func (c *clientFlags) jsonError(con *console, err error) error {
	code := exit.Usage
	if e, ok := errors.AsType[exit.Error](err); ok {
		if code = e.Code; e.Err == nil {
			return err // the result is already printed
		}
	}
	doc := struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		doc.Code, doc.Message, doc.Data = e.Code, e.Message, e.Data
		if one, ok := errors.AsType[*causeError](err); ok {
			doc.Message = one.Error()
		}
	} else if code == exit.Usage {
		doc.Code = jsonrpc.CodeInvalidParams
	}
	text, jerr := json.Marshal(map[string]any{"error": doc})
	if jerr != nil {
		return err
	}
	if werr := con.printJSON(text); werr != nil {
		return werr
	}
	return exit.With(code, nil)
}
