package main

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

//go:embed docs/*.md
var docs embed.FS

const (
	staticPrefix  = "demo://resource/static/document/"
	dynamicPrefix = "demo://resource/dynamic/"
	extraURI      = "demo://resource/extra"
)

// typeText and typeBlob are the types of dynamic resources.
const (
	typeText = "text"
	typeBlob = "blob"
)

func (i *instance) addResources() {
	entries, err := docs.ReadDir("docs")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	for _, e := range entries {
		body, err := docs.ReadFile("docs/" + e.Name())
		if err != nil {
			panic(err)
		}
		i.server.AddResource(&mcp.Resource{
			URI:         staticPrefix + e.Name(),
			Name:        e.Name(),
			MIMEType:    "text/markdown",
			Size:        int64(len(body)),
			Description: "Static document " + e.Name(),
		}, readStatic)
	}
	for _, kind := range []string{typeText, typeBlob} {
		i.server.AddResourceTemplate(&mcp.ResourceTemplate{
			URITemplate: dynamicTemplate(kind),
			Name:        "dynamic-" + kind,
			MIMEType:    dynamicMIME(kind),
			Description: fmt.Sprintf("A %s resource for every positive index, made when it is read", kind),
		}, readDynamic)
	}
}

func readStatic(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	body, err := docs.ReadFile("docs/" + strings.TrimPrefix(req.Params.URI, staticPrefix))
	if err != nil {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	return contents(&mcp.ResourceContents{
		URI:      req.Params.URI,
		MIMEType: "text/markdown",
		Text:     string(body),
	}), nil
}

func readDynamic(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	kind, index := parseDynamic(req.Params.URI)
	if index == 0 {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	return contents(dynamic(kind, index)), nil
}

func readExtra(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return contents(&mcp.ResourceContents{
		URI:      req.Params.URI,
		MIMEType: "text/plain",
		Text:     "The extra resource works.",
	}), nil
}

func contents(c *mcp.ResourceContents) *mcp.ReadResourceResult {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}
}

// exists reports whether a resource exists or, like the extra resource, may exist later.
func exists(uri string) bool {
	if name, ok := strings.CutPrefix(uri, staticPrefix); ok {
		_, err := docs.ReadFile("docs/" + name)
		return err == nil
	}
	_, index := parseDynamic(uri)
	return index != 0 || uri == extraURI
}

func dynamicTemplate(kind string) string { return dynamicPrefix + kind + "/{index}" }

func dynamicURI(kind string, index int) string {
	return dynamicPrefix + kind + "/" + strconv.Itoa(index)
}

func dynamicMIME(kind string) string {
	if kind == typeBlob {
		return "application/octet-stream"
	}
	return "text/plain"
}

// parseDynamic parses the URI of a dynamic resource. For other URIs, index is 0.
func parseDynamic(uri string) (kind string, index int) {
	rest, ok := strings.CutPrefix(uri, dynamicPrefix)
	if !ok {
		return "", 0
	}
	kind, number, _ := strings.Cut(rest, "/")
	if kind != typeText && kind != typeBlob {
		return "", 0
	}
	return kind, positive(number)
}

// positive parses a positive integer in its usual form. For other texts, it returns 0.
func positive(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strconv.Itoa(n) != s {
		return 0
	}
	return n
}

// dynamic returns a resource. Its text has the current time, so that each read gives another text, as after an update.
func dynamic(kind string, index int) *mcp.ResourceContents {
	c := &mcp.ResourceContents{URI: dynamicURI(kind, index), MIMEType: dynamicMIME(kind)}
	body := fmt.Sprintf("Resource %d: This is a %s resource created at %s", index, kind, time.Now().UTC().Format(time.RFC3339Nano))
	if kind == typeBlob {
		c.Blob = []byte(body)
	} else {
		c.Text = body
	}
	return c
}
