package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func newWhoami(stdout io.Writer) *cobra.Command {
	var l looker
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "whoami [URL]",
		Short: "Show what a key may do",
		Long: `whoami sends a key or a token to a running bridge, and prints who the caller is: the
access rule, the user, the scopes, and the servers that it may use; or why the bridge
refuses it.

URL is the address of the bridge. If the token is for one endpoint only, it is that
endpoint, such as https://mcp.example.com/files/mcp. Without URL, the configuration
file says where the bridge is. The exit code is 1 if the caller is refused, and 3 if
the bridge cannot be reached.`,
		Example: `  mcp-bridge whoami --token-env MY_TOKEN
  mcp-bridge whoami https://mcp.example.com/files/mcp --token-env MY_TOKEN`,
		RunE: func(cmd *cobra.Command, args []string) error {
			endpoint := ""
			l.clients = true
			err := l.find(cmd, args)
			if err == nil && len(args) > 0 {
				endpoint, err = l.split(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return l.whoami(cmd.Context(), stdout, endpoint, asJSON)
		},
	}
	l.add(cmd, "the key or the token", 15*time.Second)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return cmd
}

// split separates the endpoint from an address, such as /files/mcp from https://mcp.example.com/files/mcp. The part
// before the endpoint may be a server or the base path, which the bridge's metadata decides. Without metadata, split
// looks for /whoami below that part.
func (a *asked) split(ctx context.Context, address string) (endpoint string, err error) {
	u, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil {
		return "", exit.With(exit.Usage, err)
	}
	place, last := path.Split(u.Path)
	place = strings.TrimSuffix(place, "/")
	if last != "mcp" && last != "sse" {
		return "", nil // the method at handles this case
	}
	if place == "" {
		return "/" + last, nil
	}
	whole := u.Path
	base, name := path.Split(place)
	u.Path = ""
	a.url = strings.TrimRight(u.String(), "/")
	stranger := *a // without the key, because the address may not be the bridge's
	stranger.headers = nil
	status, _, answer, err := stranger.send(ctx, http.MethodGet, "/.well-known/oauth-protected-resource"+whole, nil)
	if err != nil {
		return "", err
	}
	var about struct {
		Name string `json:"resource_name"`
	}
	server := status == http.StatusOK && json.Unmarshal(answer, &about) == nil && about.Name == name
	if status != http.StatusOK {
		if status, _, _, err = a.send(ctx, http.MethodGet, place+"/whoami", nil); err != nil {
			return "", err
		}
		server = status == http.StatusNotFound
	}
	if server {
		a.url += strings.TrimSuffix(base, "/")
		return "/" + name + "/" + last, nil
	}
	a.url += place
	return "/" + last, nil
}

// whoami prints how the bridge identifies the key or the token.
func (a *asked) whoami(ctx context.Context, stdout io.Writer, endpoint string, asJSON bool) error {
	query := ""
	if endpoint != "" {
		query = "?for=" + url.QueryEscape(endpoint)
	}
	status, kind, answer, err := a.send(ctx, http.MethodGet, "/whoami"+query, nil)
	if err != nil {
		return err
	}
	var me server.Whoami
	switch {
	case !strings.HasPrefix(kind, "application/json"):
		return exit.With(exit.Server, fmt.Errorf("%s/whoami answers %d (%s): is this the address of a bridge?", a.url, status, kind))
	case status != http.StatusOK:
		var no struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(answer, &no) != nil || no.Error.Message == "" {
			no.Error.Message = "it does not say why"
		}
		return exit.With(exit.Failure, fmt.Errorf("the bridge refuses this caller (%d): %s", status, no.Error.Message))
	case asJSON:
		_, err = stdout.Write([]byte(sanitize.JSON(answer)))
		return err
	case json.Unmarshal(answer, &me) != nil:
		return exit.With(exit.Server, fmt.Errorf("%s/whoami answers something else: is this the address of a bridge?", a.url))
	}
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(stdout, "%-9s%s\n", name, sanitize.Text(text))
		}
	}
	if me.Principal == "" {
		line("caller", "everybody: there are no access rules")
	}
	line("rule", me.Rule)
	line("issuer", me.Issuer)
	line("subject", me.Subject)
	line("client", me.Client)
	line("scopes", strings.Join(me.Scopes, " "))
	if me.Until != nil {
		line("until", me.Until.Local().Format(time.DateTime))
	}
	line("servers", strings.Join(me.Servers, " "))
	return nil
}
