// Package ginmount gives a bridge its place among the routes of a gin engine. Only
// programs that import it need gin.
package ginmount

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/bridge/server"
)

// paths are the paths of the HTTP surface, as gin writes them. They are listed
// because a wildcard for all would leave the group no route of its own.
var paths = []string{
	"/healthz", "/readyz", "/metrics", "/hooks/:server",
	"/mcp", "/sse", "/messages", "/:server/mcp", "/:server/sse", "/:server/messages",
}

// Mount adds the HTTP surface of s to a gin engine, below the group's path, beside
// its other routes: those are not guarded by the bridge's checks of Origin, Host and
// keys. The group's path has no parameters. The configuration's base_path is not
// used.
func Mount(s *server.Server, at *gin.RouterGroup) {
	h := gin.WrapH(s.HandlerAt(strings.TrimSuffix(at.BasePath(), "/")))
	for _, path := range paths {
		at.Any(path, h)
	}
}
