package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// asked describes how to reach a running bridge.
type asked struct {
	url     string // without a slash at its end
	reach   flags.Reach
	headers map[string]string // of reach
	tls     *tls.Config       // how to check the certificate, without --ca-file; nil means the system's trusted certificates
	local   bool              // the address is from the configuration file, so use no proxy
	clients bool              // use the address for clients, even if there is an address for operators
	timeout time.Duration
}

// maxStatus is the maximum size of an answer in bytes.
const maxStatus = 16 << 20

func newStatus(stdout io.Writer) *cobra.Command {
	var l looker
	var health, asJSON bool
	cmd := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show the state of a running bridge",
		Long: `status prints a sentence, such as "All 3 servers working", and a table of the
servers, with their state and last error. URL is the address of the bridge, such as
http://127.0.0.1:8808. Without it, the configuration file says where the bridge is.
The exit code is 0 if the bridge is ready, 1 if it is not, and 3 if it cannot be
reached.

With --health it only checks that the bridge answers, and prints nothing. This is
for containers that have no curl.`,
		Example: `  mcp-bridge status
  mcp-bridge status http://127.0.0.1:8808
  mcp-bridge status https://mcp.example.com/tools --token-env OPS_TOKEN
  mcp-bridge status --health -c /etc/mcp-bridge/bridge.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l.clients = true
			if err := l.find(cmd, args); err != nil {
				return err
			}
			if health {
				return l.health(cmd.Context())
			}
			return l.show(cmd.Context(), stdout, asJSON)
		},
	}
	l.add(cmd, "your key of the bridge, which shows more", 5*time.Second)
	cmd.Flags().BoolVar(&health, "health", false, "only check that the bridge answers")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the state as one JSON object")
	return cmd
}

// at sets the address of the bridge. The address may be that of an endpoint.
func (a *asked) at(address string) error {
	u, err := url.Parse(address)
	if err == nil && u.Host != "" && u.Scheme != "http" && u.Scheme != "https" {
		return exit.Usagef("the URL has the unknown scheme %.20q: write http:// or https://", u.Scheme)
	}
	if err != nil || !flags.IsURL(address) || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return exit.Usagef("%q is not where a bridge can be: write a URL such as http://127.0.0.1:8808", address)
	}
	a.url = strings.TrimRight(u.String(), "/")
	for _, endpoint := range []string{"/mcp", "/sse"} {
		a.url = strings.TrimSuffix(a.url, endpoint)
	}
	return nil
}

// own sets the address of the bridge that serves a configuration on this machine. Whatever the address, the bridge must
// have the certificate in the configuration.
func (a *asked) own(c *config.Config) error {
	key, at := "listen", c.Listen
	if !a.clients && c.ConsoleListen != "" {
		key, at = "console_listen", c.ConsoleListen
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	if port == "0" {
		return exit.Usagef("%s is %s, so the port is known only to the bridge itself: name its URL", key, at)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if c.TLS.CertFile != "" {
		scheme = "https"
		own, err := certificateOf(c.TLS.CertFile)
		if err != nil {
			return err
		}
		a.tls = &tls.Config{
			InsecureSkipVerify: true, // VerifyConnection is stricter
			VerifyConnection: func(s tls.ConnectionState) error {
				if !bytes.Equal(s.PeerCertificates[0].Raw, own) {
					return errors.New("its certificate is not that of the configuration")
				}
				return nil
			},
		}
	}
	a.url, a.local = scheme+"://"+net.JoinHostPort(host, port)+c.BasePath, true
	return nil
}

// certificateOf returns the first certificate in a file. It does not read the key beside the certificate, which may be
// only for the bridge.
func certificateOf(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit.Usagef("tls: cert_file: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return block.Bytes, nil
		}
	}
	return nil, exit.Usagef("tls: cert_file %s has no certificate", file)
}

// send sends a request to a path. If body is not nil, it is sent as JSON.
func (a *asked) send(ctx context.Context, method, path string, body []byte) (status int, kind string, answer []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no answer within %v", a.timeout))
	defer cancel()
	c := remote.Config{
		URL:     a.url,
		Headers: a.headers,
		CAFile:  a.reach.CAFile,
	}
	if a.local {
		c.Proxy = "none"
	}
	if c.CAFile == "" {
		c.TLS = a.tls
	}
	client, err := remote.New(c)
	if err != nil {
		return 0, "", nil, exit.With(exit.Usage, err)
	}
	defer client.Close()
	u, err := url.Parse(a.url + path)
	if err != nil {
		return 0, "", nil, exit.With(exit.Usage, err)
	}
	own := http.Header{}
	if body != nil {
		own.Set("Content-Type", "application/json")
	}
	res, err := client.Do(client.Request(ctx, method, u, own, body))
	if err != nil {
		return 0, "", nil, exit.With(exit.Server, a.unreached(ctx, err))
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxStatus))
	if err != nil {
		return 0, "", nil, exit.With(exit.Server, fmt.Errorf("the answer of the bridge at %s broke off: %w", a.url, err))
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer, nil
}

// unreached returns the error of a request without an answer.
func (a *asked) unreached(ctx context.Context, err error) error {
	switch u, _ := url.Parse(a.url); {
	case errors.Is(err, syscall.ECONNREFUSED) && u != nil:
		return fmt.Errorf("nothing listens at %s: is the bridge running? Its first lines have its address", u.Host)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return fmt.Errorf("the bridge at %s does not answer: %s", a.url, flags.ForURL(err.Error()))
}

// health returns an error unless the bridge answers /healthz.
func (a *asked) health(ctx context.Context) error {
	status, _, _, err := a.send(ctx, http.MethodGet, "/healthz", nil)
	switch {
	case err != nil:
		return exit.With(exit.Failure, err) // health checks of containers use only 0 and 1
	case status != http.StatusOK:
		return exit.With(exit.Failure, fmt.Errorf("%s/healthz answers %d", a.url, status))
	}
	return nil
}

// show prints the state of the bridge.
func (a *asked) show(ctx context.Context, stdout io.Writer, asJSON bool) error {
	status, kind, body, err := a.send(ctx, http.MethodGet, "/readyz?format=json", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable || !strings.HasPrefix(kind, "application/json") {
		return exit.With(exit.Server, fmt.Errorf("%s/readyz answers %d (%s): is this the address of a bridge?", a.url, status, kind))
	}
	var b bridgeState
	if err := json.Unmarshal(body, &b); err != nil {
		return exit.With(exit.Server, fmt.Errorf("the answer of %s is not that of a bridge: %w", a.url, err))
	}
	is, width := terminal.Is(stdout)
	text := b.status(time.Now(), screen{width: width, color: is && terminal.Colors()})
	switch {
	case asJSON:
		text = string(sanitize.JSON(body)) + "\n"
	case gjson.GetBytes(body, "servers").Exists():
	case b.Ready:
		text = "ready\nThe bridge shows more to a caller with a key: --token-env NAME.\n"
	default:
		text = "not ready\nThe bridge says why to a caller with a key: --token-env NAME.\n"
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if status != http.StatusOK {
		return exit.With(exit.Failure, nil)
	}
	return nil
}

// looker holds the flags of a command that reads the state of a running bridge.
type looker struct {
	asked
	file string
}

// add adds the flags to a command. what describes the value of --token-env.
func (l *looker) add(cmd *cobra.Command, what string, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVarP(&l.file, "config", "c", flags.DefaultFile, "configuration file of the bridge")
	l.reach.Add(f, what)
	f.DurationVar(&l.timeout, "timeout", timeout, "longest wait for the answer")
	cmd.Args = cobra.MaximumNArgs(1)
}

// readFlags checks what to send and whom to trust.
func (a *asked) readFlags() (err error) {
	if a.headers, _, err = a.reach.Values(); err != nil {
		return err
	}
	c := remote.Config{URL: "http://localhost", Headers: a.headers} // the method at checks the real URL
	if err := c.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	return nil
}

// find reads the address of the bridge, and what to send to it, from the command line.
func (l *looker) find(cmd *cobra.Command, args []string) error {
	if err := l.readFlags(); err != nil {
		return err
	}
	switch {
	case len(args) > 0 && cmd.Flags().Changed("config"):
		return exit.Usagef("--config is of use without a URL only")
	case len(args) > 0:
		return l.at(args[0])
	}
	c, err := flags.Running(cmd.Name(), l.file, cmd.Flags().Changed("config"))
	if err != nil {
		return err
	}
	return l.own(c)
}

// A refusal is an answer that stays the same if the request is sent again.
type refusal struct{ error }

// look requests a path of the API, and decodes the answer into a struct.
func (l *looker) look(ctx context.Context, path string, into any) ([]byte, error) {
	status, _, text, err := l.send(ctx, http.MethodGet, "/"+server.AdminPath+path, nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, refusal{fmt.Errorf("%s is not a bridge, or not its address for operators: give the URL that the bridge prints, or that of console_listen", l.url)}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return nil, refusal{refused(l.url, status, text)}
	case status != http.StatusOK:
		return nil, refused(l.url, status, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, exit.With(exit.Server, fmt.Errorf("the answer of %s is not that of a bridge: %w", l.url, err))
	}
	return text, nil
}

func newSessions(stdout io.Writer) *cobra.Command {
	var l looker
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sessions [URL]",
		Short: "List the sessions of a running bridge",
		Long: `sessions shows who has a session with the bridge at URL: the name of the client, since
when, and how many of its calls run. Without URL, the configuration file says where
the bridge is.

With access rules, a key is needed: see --token-env. Callers in admin or viewers see
all sessions. With console: on, others see their own.`,
		Example: `  mcp-bridge sessions
  mcp-bridge sessions http://127.0.0.1:8808
  mcp-bridge sessions https://mcp.example.com --token-env OPS_KEY`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.find(cmd, args); err != nil {
				return err
			}
			var got struct {
				Sessions []struct {
					ID, Server, Principal, Client, Revision string
					Began, Used                             time.Time
					Calls, Streams                          int
					Left                                    bool
				}
				Total int
			}
			text, err := l.look(cmd.Context(), "sessions?limit=1000", &got)
			if err != nil {
				return err
			}
			if asJSON {
				_, err := stdout.Write(text)
				return err
			}
			if got.Total == 0 {
				_, err := fmt.Fprintln(stdout, "no sessions")
				return err
			}
			now, left := time.Now(), map[bool]string{true: ", client left"}
			t := terminal.Table{Head: []string{"SESSION", "CALLER", "CLIENT", "REVISION", "AT", "AGE", "IDLE", "CALLS", "STREAMS"}}
			for _, s := range got.Sessions {
				addRow(&t, s.ID, s.Principal, s.Client, s.Revision, strings.TrimSuffix("/"+s.Server, "/")+"/mcp", age(now, s.Began), age(now, s.Used)+left[s.Left], fmt.Sprint(s.Calls), fmt.Sprint(s.Streams))
			}
			_, width := terminal.Is(stdout)
			if _, err := io.WriteString(stdout, t.Format("", width, nil)); err != nil {
				return err
			}
			if more := got.Total - len(got.Sessions); more > 0 {
				_, err = fmt.Fprintf(stdout, "and %d more\n", more)
			}
			return err
		},
	}
	l.add(cmd, "your key of the bridge", 5*time.Second)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as one JSON document")
	return cmd
}

// age formats the time since at.
func age(now, at time.Time) string {
	return max(0, now.Sub(at)).Round(time.Second).String()
}
