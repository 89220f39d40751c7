package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// secretVariable names the variable with the client secret that the referee expects.
const secretVariable = "BEHIND_CLIENT_SECRET"

// context is the context that the referee gives to a client.
type context struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret"`
	Key    string `json:"private_key_pem"`
	Issuer string `json:"issuer"`
	Alg    string `json:"signing_algorithm"`
}

// document is the address at which the referee expects the metadata of a client.
const document = "https://conformance-test.local/client-metadata.json"

// signIn returns the bridge's arguments for signing in at an address: flags, or a file that it writes in dir.
func signIn(dir, command, at string) ([]string, error) {
	var c context
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, err
		}
	}
	if c.Issuer == "" && c.Secret != "" {
		var err error
		if c.Issuer, err = issuer(at); err != nil {
			return nil, err
		}
	}
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/client-credentials") {
		client := map[string]any{"id": c.ID}
		oauth := map[string]any{"client": client}
		if c.Key != "" {
			client["key_file"] = dir + "/key.pem"
			if err := os.WriteFile(dir+"/key.pem", []byte(c.Key), 0o600); err != nil {
				return nil, err
			}
		} else {
			client["secret"], oauth["issuer"] = c.Secret, c.Issuer
		}
		text, err := json.Marshal(map[string]any{"listen": "127.0.0.1:0", "servers": map[string]any{"referee": map[string]any{"http": map[string]any{"url": at, "oauth": oauth}}}})
		if err != nil {
			return nil, err
		}
		file := dir + "/bridge.json"
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		if command == "run" {
			return []string{"serve", file}, nil
		}
		return []string{"connect", "-c", file}, nil
	}
	args := []string{command}
	if c.ID != "" {
		args = append(args, "--client-id", c.ID)
	}
	if c.Secret != "" {
		if err := os.Setenv(secretVariable, c.Secret); err != nil {
			return nil, err
		}
		args = append(args, "--client-secret-env", secretVariable, "--issuer", c.Issuer)
	}
	args = append(args, "--client-metadata-url", document)
	if command == "run" {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	return append(args, at), nil
}

// issuer returns the referee's authorization server. The context of the referee may lack the issuer, which operators
// have if they configure a secret.
func issuer(at string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", err
	}
	u.Path = "/.well-known/oauth-protected-resource" + u.Path
	res, err := http.Get(u.String())
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var m struct {
		Servers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(res.Body).Decode(&m); err != nil || len(m.Servers) == 0 {
		return "", fmt.Errorf("%s names no authorization server (%v)", u, err)
	}
	return m.Servers[0], nil
}

// browse visits an address as a browser does.
func browse(address string) error {
	res, err := http.Get(address)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// stdio is a client of a bridge that is a stdio server. It lists the tools and calls the tool for authorization
// scenarios.
func stdio(bridge string, args []string) error {
	b := exec.Command(bridge, args...)
	b.Stderr = os.Stderr
	in, err := b.StdinPipe()
	if err != nil {
		return err
	}
	out, err := b.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	said := speak(in, bufio.NewReader(out))
	_ = in.Close()
	if err := b.Wait(); err != nil {
		return fmt.Errorf("the bridge: %w", err)
	}
	return said
}

func speak(in io.Writer, out *bufio.Reader) error {
	for i, line := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"behind","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"test-tool","arguments":{}}}`,
	} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			return err
		}
		for i != 1 {
			text, err := out.ReadBytes('\n')
			if err != nil {
				return err
			}
			var m struct {
				ID    *int
				Error json.RawMessage
			}
			if err := json.Unmarshal(text, &m); err != nil {
				return err
			}
			if m.ID == nil || *m.ID != i {
				continue
			}
			if m.Error != nil {
				return fmt.Errorf("request %d: %s", i, m.Error)
			}
			break
		}
	}
	return nil
}
