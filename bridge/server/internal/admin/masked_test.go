package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is shown of a file has none of its secrets, wherever they stand.
func TestMasked(t *testing.T) {
	const file = `# SECRET0 in a comment
listen: 127.0.0.1:8808
max_message: 4MiB
session_idle: 1h30m
access:
  - { name: ops, token: SECRET1-0123456789, servers: [files] } # SECRET2
  - { name: dev, token: "${DEV_KEY}" }
  - { name: num, token: 12345678901234567890 }
  - { name: def, token: "${KEY:-SECRET3}" }
admin: [ops]
cluster: { redis: "redis://user:SECRET4@redis.example.com/0", secret: "SECRET5" }
servers:
  files:
    stdio: { command: npx, args: ["-y", "ghp_SECRET6abcdef", "--api-key", "SECRET20", "--token=SECRET21", "-e", "PASS=SECRET22", "-H", "X-Key: SECRET23", "--root", "/srv", "5s"], env: { PLAIN: SECRET7, name: SECRET8, PIN: 1234, REF: "${REF}" } }
  short:
    stdio: npx -y --key=SECRET9
  web:
    http:
      url: https://SECRET24@example.com/v1/SECRET10a8d7f6g5h4j/mcp?key=SECRET11
      headers: { Authorization: "Bearer SECRET12", X-Tenant: "Bearer ${TENANT}" }
    limits: { calls: 8, rate: 10/s }
  plain:
    stdio: [tool, "-p", SECRETA, "-pSECRETB", "X-Api-Key: SECRETC", "--header=X: SECRETD", "bob:SECRETE@tcp(db:3306)/x", "--creds", SECRETF, "/x?key=SECRETG", SECRETH_z5jdHi6B-myT, "-k", SECRETI]
  tab:
    stdio: "npx\t--key=SECRET15"
  lines:
    stdio: { command: "sh\n-c\nSECRET16" }
  list:
    stdio: [npx, "--key=SECRET17", "postgres://me:SECRET25@db/app?password=SECRET26"]
  words:
    stdio: { command: [uvx, sk-SECRET18abc, "https://a.example.com/${PATH_PART}/x?y=${KEY}"] }
  set:
    stdio: KEY=SECRET19 npx
  api:
    rest: { openapi: https://api.example.com/v3/openapi.json, base_url: "https://${HOST}/v3", tools: { get: { description: Gets a thing, args: { kind: { value: cat }, api_key: { value: SECRET27 } } } } }
    limits: { tools: { get: 5/s, put: 0.5/s } }
  block:
    stdio:
      command: sh
      args:
        - |
          curl -u me:SECRET13 https://example.com
        - &anchor eyJSECRET14aa
        - *anchor
`
	got, err := Masked([]byte(file), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"SECRET", "1234", "user:"} {
		if strings.Contains(got, bad) {
			t.Errorf("it shows %q:\n%s", bad, got)
		}
	}
	for _, want := range []string{
		`listen: "127.0.0.1:8808"`, "max_message: 4MiB", "session_idle: 1h30m", "token: ***", "token: ${DEV_KEY}", "admin:\n  - ops", "command: npx",
		"stdio: \"npx -y --key=***\"", "REF: ${REF}", `X-Tenant: "Bearer ${TENANT}"`, "Authorization: ***", "calls: 8", "rate: 10/s", `url: "https://***@example.com/v1/***/mcp?key=***"`,
		`- "-y"`, `- "--api-key"`, `- "--token=***"`, "- /srv", "- 5s", `- "postgres://***@db/app?password=***"`, `- "https://a.example.com/${PATH_PART}/x?y=${KEY}"`,
		`openapi: "https://api.example.com/v3/openapi.json"`, `base_url: "https://${HOST}/v3"`, `description: "Gets a thing"`, "value: cat", "get: 5/s", "put: 0.5/s", "token: ***",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not show %q:\n%s", want, got)
		}
	}
	part, err := Masked([]byte(file), "web")
	if err != nil || !strings.HasPrefix(part, "http:") || strings.Contains(part, "npx") {
		t.Errorf("the part of a server: %v\n%s", err, part)
	}
	if part, err := Masked([]byte(file), "none"); part != "" || err != nil {
		t.Errorf("of no server: %q, %v", part, err)
	}
	if _, err := Masked([]byte("a: [SECRET"), ""); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("of a file that is broken: %v", err)
	}
}

// Every file that the configuration takes can be shown.
func TestMaskedFiles(t *testing.T) {
	all, err := filepath.Glob("../../../../config/testdata/*.good.yaml")
	if err != nil || len(all) < 10 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Masked(text, ""); err != nil || !strings.Contains(got, ":") {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}
