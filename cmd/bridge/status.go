package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/internal/flags"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/visible"
)

// asked is a running bridge.
type asked struct {
	url     string      // without a slash at its end
	key     string      // to show; empty for none
	tls     *tls.Config // nil for what the system trusts
	local   bool        // the address is that of a file, which no proxy is between
	timeout time.Duration
}

// maxStatus bounds what is read of an answer, in bytes.
const maxStatus = 16 << 20

func newStatus(stdout io.Writer) *cobra.Command {
	var file, tokenEnv string
	var health bool
	a := asked{}
	cmd := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show how a running bridge and its servers fare",
		Long: `status asks a running bridge how it and each server fare, and prints that as a
table. URL is where the bridge is, such as http://127.0.0.1:8808; without it, the
configuration file says so. The exit code is 0 if the bridge is ready, 1 if it is
not, and 3 if it cannot be reached.

With --health it only checks that the bridge answers, and prints nothing. This is
for containers that have no curl.`,
		Example: `  mcp-bridge status
  mcp-bridge status http://127.0.0.1:8808
  mcp-bridge status https://mcp.example.com/tools --token-env OPS_TOKEN
  mcp-bridge status --health -c /etc/mcp-bridge/bridge.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tokenEnv != "" {
				if a.key = os.Getenv(tokenEnv); a.key == "" {
					return exit.Usagef("--token-env %s: the variable is not set", tokenEnv)
				}
			}
			var err error
			switch {
			case len(args) == 0:
				var c *config.Config
				if c, err = flags.Load(file); err == nil {
					err = a.own(c)
				}
			case cmd.Flags().Changed("config"):
				err = exit.Usagef("--config is of use without a URL only")
			default:
				err = a.at(args[0])
			}
			if err != nil {
				return err
			}
			if health {
				return a.health(cmd.Context())
			}
			return a.show(cmd.Context(), stdout)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file of the bridge, which says where it listens")
	f.StringVar(&tokenEnv, "token-env", "", "NAME of a variable with a key of the bridge, which shows more")
	f.BoolVar(&health, "health", false, "check that the bridge answers, and print nothing")
	f.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	return cmd
}

// at asks the bridge at that address, which may also be one of its endpoints.
func (a *asked) at(address string) error {
	u, err := url.Parse(address)
	if err != nil || !flags.IsURL(address) || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return exit.Usagef("%q is not where a bridge can be: write a URL such as http://127.0.0.1:8808", address)
	}
	a.url = strings.TrimRight(u.String(), "/")
	for _, endpoint := range []string{"/mcp", "/sse"} {
		a.url = strings.TrimSuffix(a.url, endpoint)
	}
	return nil
}

// own asks the bridge that serves a configuration on this machine. Its certificate
// has to be that of the configuration: it need not be made for this address.
func (a *asked) own(c *config.Config) error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	if port == "0" {
		return exit.Usagef("listen is %s, so the port is known only to the bridge itself: name its URL", c.Listen)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if c.TLS.CertFile != "" {
		scheme = "https"
		pair, err := c.TLS.Pair()
		if err != nil {
			return err
		}
		a.tls = &tls.Config{
			InsecureSkipVerify: true, // VerifyConnection is stricter
			VerifyConnection: func(s tls.ConnectionState) error {
				if !bytes.Equal(s.PeerCertificates[0].Raw, pair.Certificate[0]) {
					return errors.New("the certificate is not the one of the configuration")
				}
				return nil
			},
		}
	}
	a.url, a.local = scheme+"://"+net.JoinHostPort(host, port)+c.BasePath, true
	return nil
}

// get asks for a path.
func (a *asked) get(ctx context.Context, path string) (status int, kind, body string, err error) {
	status, kind, text, err := a.send(ctx, http.MethodGet, path, nil)
	return status, kind, string(text), err
}

// send sends JSON to a path, or asks for it without.
func (a *asked) send(ctx context.Context, method, path string, body []byte) (status int, kind string, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, exit.With(exit.Usage, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	transport := &http.Transport{TLSClientConfig: a.tls}
	if !a.local {
		transport.Proxy = http.ProxyFromEnvironment
	}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", nil, exit.With(exit.Server, fmt.Errorf("the bridge at %s does not answer: %w", a.url, err))
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxStatus))
	if err != nil {
		return 0, "", nil, exit.With(exit.Server, fmt.Errorf("the bridge at %s stopped in its answer: %w", a.url, err))
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer, nil
}

// health fails if the bridge does not answer.
func (a *asked) health(ctx context.Context) error {
	status, _, _, err := a.get(ctx, "/healthz")
	switch {
	case err != nil:
		return exit.With(exit.Failure, err) // containers know 0 and 1 only
	case status != http.StatusOK:
		return exit.With(exit.Failure, fmt.Errorf("%s/healthz answers %d", a.url, status))
	}
	return nil
}

// show prints how the bridge fares.
func (a *asked) show(ctx context.Context, stdout io.Writer) error {
	status, kind, body, err := a.get(ctx, "/readyz?format=text")
	if err != nil {
		return err
	}
	isText, isJSON := strings.HasPrefix(kind, "text/plain"), strings.HasPrefix(kind, "application/json")
	switch {
	case status != http.StatusOK && status != http.StatusServiceUnavailable || !isText && !isJSON:
		return exit.With(exit.Server, fmt.Errorf("%s/readyz answers %d (%s): is this the address of a bridge?", a.url, status, kind))
	case isJSON && status == http.StatusOK:
		body = "ready\nThe bridge shows more to a caller with a key: --token-env NAME.\n"
	case isJSON:
		body = "not ready\nThe bridge says why to a caller with a key: --token-env NAME.\n"
	}
	if _, err := io.WriteString(stdout, visible.Text(body)); err != nil {
		return err
	}
	if status != http.StatusOK {
		return exit.With(exit.Failure, nil)
	}
	return nil
}
