package sign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Hook is a program or a service of the operator that returns headers for requests. Either Command or
// URL is set.
//
// A Hook gets a JSON object, on stdin or as the body of a POST. The object has method, url, headers
// (an object) and body_sha256 (64 hexadecimal digits). The Hook answers with an object whose member
// headers maps names to values.
type Hook struct {
	// Command is a program with its arguments. It runs for each request, with a few variables of the
	// bridge's environment, such as PATH and HOME, and with Env.
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env" names:"variable"`
	// URL is the address of a service. Requests to the service carry Headers.
	URL     string            `yaml:"url"`
	Headers map[string]string `yaml:"headers" names:"header"`
	// Timeout bounds one run or one request to the service. 0 means 5 s.
	Timeout time.Duration `yaml:"timeout" default:"5s"`
}

const (
	// maxAnswer bounds the answer of a hook, in bytes, and maxHeaders the number of its headers.
	// maxStderr bounds what is kept of stderr, in bytes. The log shows less of it: secrets are
	// masked before the text is cut, since a part of a secret could not be masked.
	maxAnswer  = 64 << 10
	maxHeaders = 50
	maxStderr  = 64 << 10
)

// HookError is the error of a request that a hook did not sign.
type HookError struct {
	Text   string // for clients
	Detail string // for the log: the hook's own error
}

func (h *HookError) Error() string { return "the hook that signs requests " + h.Text }

// request is the input of a hook, and answer its output.
type request struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body_sha256"`
}

type answer struct {
	Headers map[string]string `json:"headers"`
}

// Signer returns a signer with these settings. The error is about URL and Headers.
func (h Hook) Signer() (Signer, error) {
	setting.Fill(&h)
	s := &hookSigner{Hook: h}
	if h.URL == "" {
		return s, nil
	}
	var err error
	s.client, err = remote.New(remote.Config{URL: h.URL, Headers: h.Headers})
	return s, err
}

type hookSigner struct {
	Hook
	client *remote.Client // nil without URL
}

// Close implements Signer.
func (h *hookSigner) Close() {
	if h.client != nil {
		h.client.Close()
	}
}

// Sign implements Signer.
func (h *hookSigner) Sign(ctx context.Context, r *http.Request, body []byte) error {
	sum := sha256.Sum256(body)
	q := request{
		Method:  r.Method,
		URL:     r.URL.String(),
		Headers: map[string]string{},
		Body:    hex.EncodeToString(sum[:]),
	}
	for name, values := range r.Header {
		q.Headers[name] = strings.Join(values, ", ")
	}
	asked, err := json.Marshal(q)
	if err != nil {
		return err
	}
	inner, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	ask := h.run
	if h.client != nil {
		ask = h.post
	}
	said, err := ask(inner, asked)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case inner.Err() != nil:
		return &HookError{Text: "did not answer within " + h.Timeout.String()}
	case err != nil:
		return err
	case len(said) > maxAnswer:
		return &HookError{Text: fmt.Sprintf("answers more than %d bytes", maxAnswer)}
	}
	var a answer
	if err := json.Unmarshal(said, &a); err != nil || a.Headers == nil {
		return &HookError{Text: `does not answer with JSON such as {"headers":{"X-Signature":"…"}}`}
	}
	if len(a.Headers) > maxHeaders {
		return &HookError{Text: fmt.Sprintf("gives more than %d headers", maxHeaders)}
	}
	for name, value := range a.Headers {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return &HookError{Text: "gives something that is not the name of a header"}
		case remote.Reserved(name), slices.Contains([]string{"Cookie", "Expect"}, http.CanonicalHeaderKey(name)):
			return &HookError{Text: "gives the header " + name + ", which it may not set"}
		case !httpguts.ValidHeaderFieldValue(value):
			return &HookError{Text: "gives the header " + name + " a line break or another character that a header cannot have"}
		}
	}
	for name, value := range a.Headers {
		r.Header.Set(name, value)
	}
	return nil
}

// base are the variables of the bridge's environment that programs get.
var base = []string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "SYSTEMROOT", "USERPROFILE", "TEMP", "PATHEXT"}

// run starts the program and returns its stdout.
func (h *hookSigner) run(ctx context.Context, asked []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, h.Command[0], h.Command[1:]...)
	c.WaitDelay = time.Second // in case a child process keeps stdout open
	c.Env = []string{}
	for _, name := range base {
		if value, ok := os.LookupEnv(name); ok {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	for name, value := range h.Env {
		c.Env = append(c.Env, name+"="+value)
	}
	said, told := &bounded{limit: maxAnswer + 1, full: cancel}, &bounded{limit: maxStderr}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(asked), said, told
	err := together(c)
	if len(said.data) > maxAnswer {
		return said.data, nil
	}
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, &HookError{"failed: " + exited.String(), strings.TrimSpace(string(told.data))}
	} else if err != nil {
		return nil, &HookError{"could not be run", err.Error()}
	}
	return said.data, nil
}

// bounded stores the first limit bytes that are written. Once it has limit bytes, each Write calls
// full, which may be nil.
type bounded struct {
	data  []byte
	limit int
	full  func()
}

func (b *bounded) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.limit-len(b.data))]...)
	if len(b.data) == b.limit && b.full != nil {
		b.full()
	}
	return len(p), nil
}

// post sends the request to the service and returns its answer.
func (h *hookSigner) post(ctx context.Context, asked []byte) ([]byte, error) {
	r := h.client.Request(ctx, http.MethodPost, h.client.URL(), http.Header{"Content-Type": {httpio.JSON}, "Accept": {httpio.JSON}}, asked)
	res, err := h.client.Do(r)
	if err != nil {
		return nil, &HookError{"could not be asked", err.Error()}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &HookError{Text: fmt.Sprintf("answers with the status %d", res.StatusCode)}
	}
	said, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, &HookError{"could not be asked", err.Error()}
	}
	return said, nil
}
