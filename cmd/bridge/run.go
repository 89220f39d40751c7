package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/upstream"
	"github.com/mcp-bridge/bridge/bridge/auth"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
	"github.com/mcp-bridge/bridge/config"
)

func newRun(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	c := config.Default()
	var share, era, offer string
	var program flags.Program
	var remote flags.Remote
	var restart, insecure bool
	var tokenEnv string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "run [flags] (-- COMMAND [ARGS...] | URL)",
		Short: "Put one server on HTTP, without a configuration file",
		Long: `run starts COMMAND as an MCP server for each client that comes, or reaches the
remote server at URL for it. It serves this at /mcp (Streamable HTTP) and /sse
(HTTP+SSE) until it gets SIGTERM or SIGINT: then it lets calls finish; a second
signal stops it at once.

COMMAND gets PATH, HOME and the like from the environment of the bridge, and
what --env names; nothing else. With --token-env, clients have to show the key
that is in that variable, as Authorization: Bearer KEY or X-API-Key: KEY. Which
transport the server at URL speaks is found out. In a --header, ${NAME} is taken
from the environment, so that the value does not stand in the list of processes.`,
		Example: `  bridge run -- npx -y @modelcontextprotocol/server-filesystem .
  bridge run --listen 127.0.0.1:9000 --share all -- uvx mcp-server-time
  bridge run --listen 0.0.0.0:8808 --token-env BRIDGE_KEY -- ./my-server
  bridge run --env GITHUB_TOKEN --env LOG=debug -- ./my-server --verbose
  bridge run https://tools.example.com/mcp
  bridge run --header 'Authorization: Bearer ${TOKEN}' --transport sse https://tools.example.com/events`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("name the program to run, behind --, or the URL of a server: bridge run -- npx -y @modelcontextprotocol/server-everything")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			var s config.Server
			if flags.IsURL(args[0]) {
				if err := useless(cmd, "a program", "env", "cwd"); err != nil {
					return err
				}
				if len(args) > 1 {
					return exit.Usagef("a URL takes no arguments; flags belong before it")
				}
				log = hinting(log)
				s, err = remote.Server(args[0], share)
				c.Warnings = s.Warnings()
			} else {
				if err := useless(cmd, "a URL", "header", "transport"); err != nil {
					return err
				}
				if len(args) == 1 && address.MatchString(args[0]) {
					return exit.Usagef("%s is no program; for a remote server write http://%[1]s or https://%[1]s", args[0])
				}
				if err := document(args[0], program.Cwd); err != nil {
					return err
				}
				s, err = program.Server(args, share)
				if err == nil {
					c.Warnings = missing(&s)
				}
			}
			if err != nil {
				return err
			}
			s.Restart, s.Timeout, s.Era, s.Offer = restart, timeout, era, offer
			s.MaxTimeout = max(s.MaxTimeout, timeout)
			c.Servers = []config.Server{s}
			if c.Access, err = tokenRule(tokenEnv, os.LookupEnv); err != nil {
				return err
			}
			if err := refuseOpen(&c, insecure, "name a variable with a key by --token-env"); err != nil {
				return err
			}
			if err := c.Validate(); err != nil { // what is wrong is said first
				return exit.With(exit.Usage, err)
			}
			if told := isolation(&s, tokenEnv != ""); told != "" {
				log.Info(told)
			}
			return serve(cmd.Context(), &c, log, stdout)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows COMMAND is COMMAND's
	f.StringVar(&c.Listen, "listen", c.Listen, "address to serve on; port 0 picks a free one and prints it")
	f.StringVar(&share, "share", config.ShareSession, "who uses one process or connection together: session, principal, call or all")
	program.Add(f)
	f.StringVar(&tokenEnv, "token-env", "", "NAME of a variable with the key that clients have to show, of 16 characters or more")
	addInsecureFlag(f, &insecure)
	remote.Add(f)
	flags.AddEra(f, &era)
	addOfferFlag(f, &offer)
	f.BoolVar(&restart, "restart", true, "go on with a fresh process or connection when one is lost; false ends the session instead")
	f.DurationVar(&timeout, "timeout", 300*time.Second, "how long a call may be silent; progress resets it")
	f.StringSliceVar(&c.AllowedOrigins, "allow-origin", nil, "browser origin that may call, such as https://app.example.com (repeatable)")
	f.StringSliceVar(&c.AllowedHosts, "allow-host", nil, "Host under which the bridge may be called, beside loopback names (repeatable)")
	return cmd
}

// isolation says what clients without sessions have in common, where --share does
// not say so itself; empty otherwise.
func isolation(s *config.Server, key bool) string {
	if s.Offer == config.OfferLegacy || s.Share != config.ShareSession && s.Share != config.SharePrincipal {
		return ""
	}
	who := "they all are one caller to the bridge"
	if key {
		who = "all that have the key are one caller"
	}
	return "clients of 2026-07-28 have no sessions: " + who + ", and share what the server remembers from call to call; --share call gives each call a connection of its own"
}

// tokenRule makes the access rule of --token-env, which lets one caller in.
func tokenRule(name string, env func(string) (string, bool)) ([]config.Access, error) {
	if name == "" {
		return nil, nil
	}
	key, ok := env(name)
	if !ok {
		return nil, exit.Usagef("--token-env %s: the variable is not set", name)
	}
	if err := auth.Check(key); err != nil {
		return nil, exit.Usagef("--token-env %s: the key in the variable %w", name, err)
	}
	return []config.Access{{Name: "client", Token: key}}, nil
}

// address is what a URL looks like whose beginning was left out.
var address = regexp.MustCompile(`^[\w.-]+:\d+(/|$)|^[\w-]+(\.[\w-]+)+/(mcp|sse)$`)

// missing warns of a program that is not there; it may be installed later.
func missing(s *config.Server) []string {
	if err := stdio.New(s.Name, *s.Stdio, upstream.Options{}).Check(); err != nil {
		return []string{fmt.Sprintf("%s cannot be started: %v", s.Stdio.Command, err)}
	}
	return nil
}

// document refuses what is a file for another use: nothing could be started.
func document(path, cwd string) error {
	ext := strings.ToLower(filepath.Ext(path))
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
		return nil
	}
	at := path
	if !filepath.IsAbs(at) {
		at = filepath.Join(cwd, at)
	}
	info, err := os.Stat(at)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 && runtime.GOOS != "windows" {
		return nil
	}
	return exit.Usagef(`%s is no program. A configuration is served by "bridge serve -c %[1]s". To serve an OpenAPI document, write a configuration and serve that:

servers:
  api:
    rest: { openapi: %[1]s }`, path)
}

// useless refuses flags that are of use with something else only: they would
// seem to work.
func useless(cmd *cobra.Command, with string, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return exit.Usagef("--%s is of use with %s only", name, with)
		}
	}
	return nil
}
