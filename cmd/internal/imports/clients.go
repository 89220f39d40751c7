package imports

import (
	"os"
	"path/filepath"
	"strings"
)

type Client struct {
	Name  string
	Paths []string // where the client's servers may be; files of the user come first, and take precedence over files in the working directory
	Files []string // those of Paths that exist
}

// clients lists the known clients. ~ means the home folder, and + the system's folder for settings.
var clients = []Client{
	{Name: "claude-desktop", Paths: []string{"+/Claude/claude_desktop_config.json"}},
	{Name: "claude-code", Paths: []string{"$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json", ".mcp.json"}},
	{Name: "cursor", Paths: []string{"~/.cursor/mcp.json", ".cursor/mcp.json"}},
	{Name: "vscode", Paths: []string{"+/Code/User/mcp.json", "+/Code/User/settings.json", ".vscode/mcp.json"}},
	{Name: "windsurf", Paths: []string{"~/.codeium/windsurf/mcp_config.json"}},
	{Name: "zed", Paths: []string{"~/.config/zed/settings.json"}},
	{Name: "cline", Paths: []string{"+/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"}},
	{Name: "roo", Paths: []string{"+/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json", ".roo/mcp.json"}},
	{Name: "continue", Paths: []string{"~/.continue/config.yaml"}},
	{Name: "gemini", Paths: []string{"~/.gemini/settings.json", ".gemini/settings.json"}},
	{Name: "lm-studio", Paths: []string{"~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"}},
	{Name: "goose", Paths: []string{"~/.config/goose/config.yaml"}},
	{Name: "opencode", Paths: []string{"~/.config/opencode/opencode.json", "opencode.json"}},
	{Name: "crush", Paths: []string{"~/.config/crush/crush.json", ".crush.json"}},
	{Name: "codex", Paths: []string{"~/.codex/config.toml"}},
	{Name: "kiro", Paths: []string{"~/.kiro/settings/mcp.json", ".kiro/settings/mcp.json"}},
}

// Clients returns the known clients, with their paths on this machine.
func Clients() []Client {
	home, _ := os.UserHomeDir()
	settings, _ := os.UserConfigDir()
	var all []Client
	for _, c := range clients {
		found := Client{Name: c.Name}
		for _, file := range c.Paths {
			first, rest, nested := strings.Cut(file, "/")
			base, known := map[string]string{"~": home, "+": settings, "$CLAUDE_CONFIG_DIR": os.Getenv("CLAUDE_CONFIG_DIR")}[first]
			switch {
			case known && base == "":
				continue
			case known && nested:
				file = filepath.Join(base, filepath.FromSlash(rest))
			}
			found.Paths = append(found.Paths, file)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				found.Files = append(found.Files, file)
			}
		}
		all = append(all, found)
	}
	return all
}
