package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// authScenarios are those in which a client has to get a token, by the revision whose
// rules it is judged by. All that the suite has for a revision are here.
var authScenarios = map[string][]string{
	"2025-03-26": {"auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"},
	"2025-06-18": {"auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none"},
	legacy: {
		"auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none",
		"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd",
		"auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined",
		"auth/scope-step-up", "auth/scope-retry-limit", "auth/pre-registration",
	},
	modern: {
		"auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none",
		"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd",
		"auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined",
		"auth/scope-step-up", "auth/scope-retry-limit", "auth/pre-registration",
		"auth/resource-mismatch", "auth/offline-access-scope", "auth/offline-access-not-supported", "auth/authorization-server-migration",
		"auth/iss-supported", "auth/iss-not-advertised", "auth/iss-supported-missing", "auth/iss-wrong-issuer", "auth/iss-unexpected", "auth/iss-normalized",
		"auth/metadata-issuer-mismatch",
	},
	"extensions": {"auth/client-credentials-jwt", "auth/client-credentials-basic"},
}

// authVariants are those that differ little from one that is always played: the whole
// matrix has them.
var authVariants = []string{
	"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var3", "auth/scope-from-scopes-supported",
	"auth/scope-omitted-when-undefined", "auth/scope-retry-limit", "auth/offline-access-not-supported",
	"auth/iss-not-advertised", "auth/iss-supported-missing", "auth/iss-unexpected", "auth/iss-normalized",
}

// TestConformanceAuth runs the suite's scenarios of authorization with the referee as the
// bridge's upstream, where the bridge has to sign in: as a server over HTTP with the client
// that the Go SDK has for it in front, and as a stdio server. It is strict: a warning fails.
// Unless the whole matrix is asked for, the two take turns, variants are left out, and a
// scenario that several revisions have is played in one.
func TestConformanceAuth(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	requireNode22(t, node(t))
	for way, mode := range []string{"run", "connect"} {
		command := strings.Join([]string{behindProgram(t), mode, bridgeProgram(t), conformanceClientProgram(t)}, " ")
		for _, revision := range []string{"2025-03-26", "2025-06-18", legacy, modern, "extensions"} {
			want := authScenarios[revision]
			if !whole && revision == legacy {
				continue // the newest has them too
			}
			t.Run(mode+"/"+revision, func(t *testing.T) {
				t.Parallel()
				results := t.TempDir()
				if !whole {
					want = inTurns(way, revision, want)
				}
				for _, scenario := range want {
					args := []string{modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "client", "--scenario", scenario, "--command", command, "--timeout", fmt.Sprint(left().Milliseconds()), "--output-dir", results}
					if revision != "extensions" {
						args = append(args, "--spec-version", revision)
					}
					runNode(t, args...)
				}
				ran, passed := scenarios(t, filepath.Join(results, "auth"), clientRun, nil, nil)
				t.Logf("%d of %d scenarios passed", passed, ran)
				if ran != len(want) {
					t.Errorf("%d scenarios ran, want %d", ran, len(want))
				}
			})
		}
	}
}

// inTurns returns every other scenario of those that are not played elsewhere: the other
// way has the rest.
func inTurns(way int, revision string, all []string) (mine []string) {
	n := way
	for _, scenario := range all {
		if revision == modern && (slices.Contains(authVariants, scenario) || slices.Contains(authScenarios["2025-06-18"], scenario)) {
			continue
		}
		if n++; n%2 == 1 {
			mine = append(mine, scenario)
		}
	}
	return mine
}
