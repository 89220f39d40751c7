package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// drainHelp is the end of the help texts of drain and resume.
const drainHelp = `
Without URL, the configuration file says where the bridge is. With access rules,
the key of a caller in admin is needed: see --token-env.`

func newDrain(stdout io.Writer) *cobra.Command {
	var d drainer
	var long, wait time.Duration
	cmd := &cobra.Command{
		Use:   "drain [URL] [SERVER]",
		Short: "Stop new calls to a server",
		Long: `drain stops new calls to SERVER until 'mcp-bridge resume'. Active calls end as usual:
with --wait, drain waits for them. Without SERVER, it drains the bridge: /readyz
answers 503, so that a load balancer sends no new clients. Present clients stay.
` + drainHelp,
		Example: `  mcp-bridge drain files --wait 5m
  mcp-bridge drain files --for 10m
  mcp-bridge drain https://mcp.example.com --token-env OPS_KEY`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.find(cmd, args); err != nil {
				return err
			}
			body := map[string]string{}
			for name, value := range map[string]time.Duration{"for": long, "wait": wait} {
				switch {
				case !cmd.Flags().Changed(name):
				case d.server == "":
					return exit.Usagef("--%s needs the name of a server", name)
				case value <= 0:
					return exit.Usagef("--%s must be longer than 0", name)
				}
			}
			if long > 0 {
				body["for"] = long.String()
			}
			if err := d.ask(cmd.Context(), "drain", body); err != nil {
				return err
			}
			if d.server == "" {
				_, err := fmt.Fprintln(stdout, "the bridge is drained: /readyz answers 503")
				return err
			}
			left, err := d.await(cmd.Context(), wait)
			if err != nil {
				return err
			}
			if _, err = fmt.Fprintf(stdout, "%s gets no new calls; %s, %d parked until the client answers\n", sanitize.Text(d.server), count(left.Calls, "active call"), left.Parked); err == nil && wait > 0 && left.Calls+left.Parked > 0 {
				err = exit.With(exit.Timeout, fmt.Errorf("not all calls ended within %v", wait))
			}
			return err
		},
	}
	d.add(cmd)
	cmd.Flags().DurationVar(&long, "for", 0, "resume after this time, at most 24h")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait this long for active calls to end; exit code 4 if some are left")
	return cmd
}

func newResume(stdout io.Writer) *cobra.Command {
	var d drainer
	cmd := &cobra.Command{
		Use:   "resume [URL] [SERVER]",
		Short: "Allow calls to a drained server again",
		Long: `resume ends a drain of SERVER, or without SERVER that of the bridge.
` + drainHelp,
		Example: `  mcp-bridge resume files
  mcp-bridge resume https://mcp.example.com --token-env OPS_KEY`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.find(cmd, args); err != nil {
				return err
			}
			if err := d.ask(cmd.Context(), "resume", map[string]string{}); err != nil {
				return err
			}
			said := "the bridge is not drained any more"
			if d.server != "" {
				said = sanitize.Text(d.server) + " gets calls again"
			}
			_, err := fmt.Fprintln(stdout, said)
			return err
		},
	}
	d.add(cmd)
	return cmd
}

// drainer drains a server of a running bridge, or without a name the whole bridge.
type drainer struct {
	looker
	server string
}

func (d *drainer) add(cmd *cobra.Command) {
	d.looker.add(cmd, "your key of the bridge", 5*time.Second)
	cmd.Args = cobra.MaximumNArgs(2)
}

// find reads the bridge and the server from the command line.
func (d *drainer) find(cmd *cobra.Command, args []string) error {
	if n := len(args); n > 0 && !flags.IsURL(args[n-1]) {
		d.server, args = args[n-1], args[:n-1]
	}
	if len(args) > 1 {
		return exit.Usagef("two URLs: name one bridge, and a server of it")
	}
	return d.looker.find(cmd, args)
}

// ask sends an operator's request for the server or the bridge.
func (d *drainer) ask(ctx context.Context, what string, body map[string]string) error {
	path := what
	if d.server != "" {
		path = "servers/" + url.PathEscape(d.server) + "/" + what
	}
	asked, _ := json.Marshal(body) // strings can always be encoded
	status, _, text, err := d.send(ctx, http.MethodPost, "/"+server.AdminPath+path, asked)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		return nil
	case status == http.StatusNotFound && d.server != "":
		return fmt.Errorf("the bridge at %s has no server %q: 'mcp-bridge top' lists its servers", d.url, d.server)
	case status == http.StatusNotFound:
		return fmt.Errorf("the bridge at %s cannot drain: use the address for operators (console_listen), if it has one, or update the bridge", d.url)
	}
	return refused(d.url, status, text)
}

type inFlight struct {
	Calls  int `json:"calls"`
	Parked int `json:"parked_calls"`
}

// drainEvery is the interval at which drain asks for the number of calls in flight.
const drainEvery = 500 * time.Millisecond

// await waits until no call is in flight at the server, but not longer than within. It returns the remaining calls.
func (d *drainer) await(ctx context.Context, within time.Duration) (left inFlight, err error) {
	end := time.Now().Add(within)
	for {
		var out struct{ Server inFlight }
		if _, err := d.look(ctx, "servers/"+url.PathEscape(d.server), &out); err != nil {
			return left, err
		}
		left = out.Server
		if left.Calls+left.Parked == 0 || !time.Now().Before(end) {
			return left, nil
		}
		if err := backoff.For(ctx, min(drainEvery, time.Until(end))); err != nil {
			return left, exit.With(exit.Interrupted, errors.New("interrupted"))
		}
	}
}
