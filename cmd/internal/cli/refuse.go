package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/cut"
)

const (
	maxFault   = 2 << 10  // bounds the text of a fault for a client, in bytes
	maxRefused = 16 << 20 // bounds a line of a client that is refused, in bytes
)

// refuse reports a fault that keeps connect from starting: at once to stderr, and to the client on in and out as the
// answer to each request. Clients show such an answer, but only few show the stderr of a program that ends. refuse
// returns when the client has left or ctx ends. Its error has the fault's exit code and no text.
func refuse(ctx context.Context, in io.Reader, out, stderr io.Writer, fault error) error {
	e, ok := errors.AsType[exit.Error](fault)
	if !ok {
		e = exit.Error{Code: exit.Failure, Err: fault}
	}
	fmt.Fprintln(stderr, "mcp-bridge:", e)
	done := make(chan struct{})
	go func() {
		defer close(done)
		answerAll(in, out, cut.Head([]byte(e.Error()), maxFault))
	}()
	select {
	case <-done:
	case <-ctx.Done():
		if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
			<-done
		} // otherwise, the goroutine stays until in has input
	}
	return exit.With(e.Code, nil)
}

// answerAll answers each request on in with an error, until in ends or out breaks.
func answerAll(in io.Reader, out io.Writer, message string) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRefused)
	for lines.Scan() {
		all := [][]byte{lines.Bytes()}
		if jsonrpc.IsBatch(all[0]) {
			all, _ = jsonrpc.Split(all[0]) // no client waits for an answer to a text that is no batch
		}
		for _, text := range all {
			m, err := jsonrpc.ParseUTF8(text)
			if err != nil || !m.IsRequest() {
				continue
			}
			answer := jsonrpc.NewError(m.ID, jsonrpc.CodeInternal, message, nil)
			if _, err := io.WriteString(out, string(answer.Append(nil, m.ID, nil))+"\n"); err != nil {
				return
			}
		}
	}
}
