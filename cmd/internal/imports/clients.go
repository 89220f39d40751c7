package imports

import (
	"os"
	"path/filepath"
	"strings"
)

// Client is a program whose configuration files this package reads.
type Client struct {
	Name  string
	Files []string // with its servers; files of its user come first, and win over the working directory's
}

// clients lists the known clients. ~ stands for the home folder, + for the system's folder
// for settings.
var clients = []Client{
	{"claude-desktop", []string{"+/Claude/claude_desktop_config.json"}},
	{"claude-code", []string{"$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json", ".mcp.json"}},
	{"cursor", []string{"~/.cursor/mcp.json", ".cursor/mcp.json"}},
	{"vscode", []string{"+/Code/User/mcp.json", "+/Code/User/settings.json", ".vscode/mcp.json"}},
	{"windsurf", []string{"~/.codeium/windsurf/mcp_config.json"}},
	{"zed", []string{"~/.config/zed/settings.json"}},
	{"cline", []string{"+/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"}},
	{"roo", []string{"+/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json", ".roo/mcp.json"}},
	{"continue", []string{"~/.continue/config.yaml"}},
	{"gemini", []string{"~/.gemini/settings.json", ".gemini/settings.json"}},
	{"lm-studio", []string{"~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"}},
	{"goose", []string{"~/.config/goose/config.yaml"}},
	{"opencode", []string{"~/.config/opencode/opencode.json", "opencode.json"}},
	{"crush", []string{"~/.config/crush/crush.json", ".crush.json"}},
	{"codex", []string{"~/.codex/config.toml"}},
	{"kiro", []string{"~/.kiro/settings/mcp.json", ".kiro/settings/mcp.json"}},
}

// Clients returns the known clients, each with its existing files.
func Clients() []Client {
	home, _ := os.UserHomeDir()
	settings, _ := os.UserConfigDir()
	var all []Client
	for _, c := range clients {
		found := Client{Name: c.Name}
		for _, file := range c.Files {
			first, rest, nested := strings.Cut(file, "/")
			base, known := map[string]string{"~": home, "+": settings, "$CLAUDE_CONFIG_DIR": os.Getenv("CLAUDE_CONFIG_DIR")}[first]
			switch {
			case known && base == "":
				continue
			case known && nested:
				file = filepath.Join(base, filepath.FromSlash(rest))
			}
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				found.Files = append(found.Files, file)
			}
		}
		all = append(all, found)
	}
	return all
}
