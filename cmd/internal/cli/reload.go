package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func newReload(stdout, stderr io.Writer) *cobra.Command {
	var check, asJSON bool
	var l looker
	cmd := &cobra.Command{
		Use:   "reload [URL]",
		Short: "Reload the configuration of a running bridge",
		Long: `reload makes the bridge at URL read its file again, and prints each change with the
time from which it counts:

  live     at once
  renew    at once, with a new connection to the server
  next     for sessions that begin from now on
  restart  after a restart of the bridge

A file with faults changes nothing: reload prints them, and the exit code is 2.

Without URL, the configuration file says where the bridge is. With access rules,
the key of a caller in admin is needed: see --token-env.`,
		Example: `  mcp-bridge reload
  mcp-bridge reload --check
  mcp-bridge reload http://127.0.0.1:8808
  mcp-bridge reload https://mcp.example.com --token-env OPS_KEY`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.find(cmd, args); err != nil {
				return err
			}
			out, err := l.reload(cmd.Context(), check)
			if err != nil {
				return err
			}
			if asJSON {
				text, _ := json.MarshalIndent(out, "", "  ") // cannot fail
				_, err := fmt.Fprintln(stdout, string(sanitize.JSON(text)))
				return err
			}
			for _, w := range out.Warnings {
				fmt.Fprintln(stderr, "warning:", sanitize.Text(w))
			}
			return printChanges(stdout, out, "nothing has changed")
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as one JSON document")
	l.add(cmd, "your key of the bridge", reloadTimeout)
	return cmd
}

// printChanges prints the changes, or the text none if there are no changes.
func printChanges(w io.Writer, out *reload.Result, none string) error {
	for _, change := range out.Changes {
		if _, err := fmt.Fprintln(w, sanitize.Text(change.String())); err != nil {
			return err
		}
	}
	if len(out.Changes) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	return nil
}

// reloadTimeout bounds the wait for a reload, which reads files and documents.
const reloadTimeout = time.Minute

// reloadPath is the path for a reload, below the base path.
const reloadPath = "/" + server.AdminPath + "reload"

// reload makes the bridge reload its file. With check, reload only returns the changes.
func (a *asked) reload(ctx context.Context, check bool) (*reload.Result, error) {
	body, _ := json.Marshal(map[string]bool{"dry_run": check}) // cannot fail
	status, _, text, err := a.send(ctx, http.MethodPost, reloadPath, body)
	if err != nil {
		return nil, err
	}
	if status == http.StatusOK {
		var out reload.Result
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, fmt.Errorf("the answer of %s is not that of a bridge: %w", a.url, err)
		}
		return &out, nil
	}
	return nil, refused(a.url, status, text)
}

// refused returns the error for a response that is not a success.
func refused(at string, status int, text []byte) error {
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	var of struct {
		Message string `json:"message"`
		Faults  []struct {
			File    string `json:"file"`
			Line    int    `json:"line"`
			Message string `json:"message"`
		} `json:"faults"`
	}
	_ = json.Unmarshal(text, &said) // answers of other programs have no message
	_ = json.Unmarshal(said.Error, &of)
	switch {
	case status == http.StatusUnprocessableEntity:
		var faults config.Faults
		for _, f := range of.Faults {
			faults = append(faults, config.Fault{
				File:    f.File,
				Line:    f.Line,
				Message: f.Message,
			})
		}
		if len(faults) > 0 {
			return exit.Usagef("nothing has changed: the configuration has faults:\n%w", faults)
		}
		return exit.With(exit.Usage, errors.New("nothing has changed: "+of.Message))
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%s requires a key: name the variable that holds it with --token-env", at)
	case status == http.StatusNotFound:
		return fmt.Errorf("the bridge at %s cannot reload: it must serve a file (mcp-bridge serve), and this must be its address for operators (console_listen)", at)
	case of.Message != "":
		return fmt.Errorf("%s: %s", at, of.Message)
	}
	return fmt.Errorf("%s answers with status %d", at, status)
}

// against prints the changes that a file would cause at a bridge that serves it.
func (a *asked) against(ctx context.Context, w io.Writer, file, at string) error {
	if err := a.readFlags(); err != nil {
		return err
	}
	if err := a.at(at); err != nil {
		return err
	}
	out, err := a.reload(ctx, true)
	if err != nil {
		return err
	}
	if out.Digest != config.Digest(file) {
		return fmt.Errorf("the bridge at %s reads %s, which differs from %s", at, out.File, file)
	}
	fmt.Fprintf(w, "at %s this would change:\n", at)
	return printChanges(w, out, "nothing")
}
