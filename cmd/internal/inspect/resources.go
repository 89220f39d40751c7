package inspect

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/list"
)

func newResources(f *clientFlags) *cobra.Command {
	var long bool
	var uri string
	c := &cobra.Command{
		Use:   "resources [flags] TARGET [URI]",
		Short: "List the resources of a server, or read one",
		Long: `resources lists the resources of a server and its templates of resources. With
a URI it reads that resource and writes its content to stdout: bytes as they
are, except for binary content on a terminal.
` + exitHelp,
		Example: `  mcp-bridge resources https://tools.example.com/mcp
  mcp-bridge resources files demo://resource/static/document/features.md
  mcp-bridge resources --long -- npx -y @modelcontextprotocol/server-everything`,
	}
	c.Flags().BoolVarP(&long, "long", "l", false, "show the descriptions, too")
	c.RunE = f.runE(action{
		prepare: func(rest []string) error {
			switch {
			case len(rest) > 1:
				return exit.Usagef("resources takes one target and one URI, but got %q too (see '%s --help')", rest[1:], c.CommandPath())
			case len(rest) == 1 && long:
				return exit.Usagef("--long is of use for the list only")
			case len(rest) == 1:
				uri = rest[0]
			}
			return f.notLong(long)
		},
		do: func(ctx context.Context, c *client) error {
			if uri != "" {
				return c.read(ctx, uri)
			}
			return c.resources(ctx, long)
		},
	})
	return c
}

func (c *client) resources(ctx context.Context, long bool) error {
	_, resources, err := c.list(ctx, list.Resources, func(ctx context.Context, cursor string) error {
		_, err := c.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
		return err
	})
	if err != nil {
		return err
	}
	_, templates, err := c.list(ctx, list.Templates, func(ctx context.Context, cursor string) error {
		_, err := c.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
		return err
	})
	if err != nil {
		return err
	}
	if c.flags.json {
		one, two := whole("resources", resources), whole("resourceTemplates", templates)
		return c.printJSON([]byte(strings.TrimSuffix(string(one), "}") + "," + strings.TrimPrefix(string(two), "{")))
	}
	if len(resources)+len(templates) == 0 {
		c.status.print("the server has no resources\n")
		return nil
	}
	text := ""
	if len(resources) > 0 {
		text = resourceTable(c.console, "URI", "uri", resources, long)
	}
	if len(templates) > 0 {
		if text != "" {
			text += "\n"
		}
		text += resourceTable(c.console, "TEMPLATE", "uriTemplate", templates, long)
	}
	return c.emit(text)
}

func resourceTable(c *console, head, key string, all []gjson.Result, long bool) string {
	t := terminal.Table{Head: []string{head, "NAME", "TYPE", "SIZE", "DESCRIPTION"}}
	for _, r := range all {
		about := ""
		if long {
			about = r.Get("description").String()
		}
		t.Add(c.text(r.Get(key).String()), c.text(cmp.Or(title(r), r.Get("name").String())), c.text(r.Get("mimeType").String()), r.Get("size").Raw, c.text(about))
	}
	width := c.width
	if long {
		width = 0
	}
	return t.Format("", width, c.bold)
}

// read writes the content of a resource to stdout.
func (c *client) read(ctx context.Context, uri string) error {
	raw, err := c.request(ctx, func(ctx context.Context) error {
		_, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		return err
	})
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(raw)
	}
	for _, part := range gjson.GetBytes(raw, "contents").Array() {
		if err := c.part(part); err != nil {
			return err
		}
	}
	return nil
}

// part writes one part of a resource's content.
func (c *client) part(part gjson.Result) error {
	if text := part.Get("text"); text.Exists() {
		s := c.text(text.String())
		if c.outTerm && !strings.HasSuffix(s, "\n") {
			s += "\n"
		}
		return c.emit(s)
	}
	data, err := base64.StdEncoding.DecodeString(part.Get("blob").String())
	if err != nil {
		return fmt.Errorf("the server's answer has binary content that is not valid base64: %w", err)
	}
	if !c.outTerm {
		return c.emit(string(data))
	}
	kind := cmp.Or(c.text(terminal.OneLine(part.Get("mimeType").String())), "binary content of an unnamed type")
	return c.emit(fmt.Sprintf("%s, %d bytes: send the output to a file to get it\n", kind, len(data)))
}
