package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/visible"
)

// Exit codes of the commands that speak to a server, beside 0 and exitUsage.
const (
	exitAnswer      = 1   // the tool answered with isError, or the server with a JSON-RPC error
	exitServer      = 3   // the server could not be reached or started, or failed under way
	exitTimeout     = 4   // the server was silent for too long
	exitInterrupted = 130 // as shells say it of SIGINT
)

// exitError ends a command with a code. Without an error inside, everything has
// been said.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return visible.Text(e.err.Error()) // there may be text of a server's in it
}

func (e exitError) Unwrap() error { return e.err }

// errSilent says that --timeout has run out before there was a session.
var errSilent = errors.New("the server was not ready in time (--timeout)")

// explain gives an error its exit code and a text for the user.
func (f *clientFlags) explain(ctx context.Context, err error) error {
	if _, done := errors.AsType[exitError](err); done {
		return err
	}
	if _, usage := errors.AsType[usageError](err); usage {
		return err
	}
	if ctx.Err() != nil {
		return exitError{exitInterrupted, errors.New("interrupted")}
	}
	if errors.Is(err, errSilent) {
		return exitError{exitTimeout, err}
	}
	hint := ""
	if !f.verbose {
		hint = " (--verbose shows more)"
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return exitError{exitServer, fmt.Errorf("%w%s", err, hint)}
	}
	switch faultOf(e) {
	case "":
		return exitError{exitAnswer, &answerError{e}}
	case "upstream_timeout":
		return exitError{exitTimeout, err}
	}
	return exitError{exitServer, fmt.Errorf("%w%s", err, hint)}
}

// faultOf returns what the bridge says about an error that it made itself, or
// nothing for one of the server's.
func faultOf(e *jsonrpc.Error) string { return gjson.GetBytes(e.Data, "bridge").String() }

// answerError is a server's JSON-RPC error as its user sees it.
type answerError struct{ err *jsonrpc.Error }

const maxShownData = 500 // bytes of an error's data in a message; --json-output has all of it

func (e *answerError) Error() string {
	s := fmt.Sprintf("the server answered with error %d: %s", e.err.Code, e.err.Message)
	if len(e.err.Data) > maxShownData {
		s += "\n" + string(e.err.Data[:maxShownData]) + "…"
	} else if len(e.err.Data) > 0 {
		s += "\n" + string(e.err.Data)
	}
	return s
}

func (e *answerError) Unwrap() error { return e.err }

// jsonError prints an error as a JSON document.
func (f *clientFlags) jsonError(con *console, err error) error {
	code := exitUsage
	if e, ok := errors.AsType[exitError](err); ok {
		if code = e.code; e.err == nil {
			return err // the result has been printed
		}
	}
	doc := struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		doc.Code, doc.Message, doc.Data = e.Code, e.Message, e.Data
		if c, ok := errors.AsType[*causeError](err); ok {
			doc.Message = c.Error()
		}
	} else if code == exitUsage {
		doc.Code = jsonrpc.CodeInvalidParams
	}
	text, jerr := json.Marshal(map[string]any{"error": doc})
	if jerr != nil {
		return err
	}
	if werr := con.printJSON(text); werr != nil {
		return werr
	}
	return exitError{code: code}
}
