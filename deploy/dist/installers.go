package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
)

// archiveURL returns the address of a file of the release.
func archiveURL(version, name string) string {
	return homepage + "/releases/download/v" + version + "/" + name
}

// formula returns the Homebrew formula that installs the archives.
func formula(version string, sums map[string][sha256.Size]byte) []byte {
	archive := func(system, processor string) string {
		name := strings.Join([]string{program, version, system, processor}, "_") + ".tar.gz"
		return fmt.Sprintf("url %q\n      sha256 \"%x\"", archiveURL(version, name), sums[name])
	}
	return fmt.Appendf(nil, `class McpBridge < Formula
  desc %q
  homepage %q
  version %q
  license "MIT"

  on_macos do
    on_arm do
      %s
    end
    on_intel do
      %s
    end
  end

  on_linux do
    on_arm do
      %s
    end
    on_intel do
      %s
    end
  end

  def install
    bin.install "mcp-bridge"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/mcp-bridge.bash" => "mcp-bridge"
    zsh_completion.install "completions/_mcp-bridge"
    fish_completion.install "completions/mcp-bridge.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mcp-bridge version")
  end
end
`, about, homepage, version, archive("darwin", "arm64"), archive("darwin", "amd64"), archive("linux", "arm64"), archive("linux", "amd64"))
}

// scoop returns the Scoop manifest that installs the archives on Windows.
func scoop(version string, sums map[string][sha256.Size]byte) ([]byte, error) {
	type source struct {
		URL    string `json:"url"`
		Hash   string `json:"hash,omitempty"`
		Folder string `json:"extract_dir"`
	}
	archive := func(version, processor string) source {
		folder := strings.Join([]string{program, version, "windows", processor}, "_")
		return source{URL: archiveURL(version, folder+".zip"), Folder: folder}
	}
	sources, updates := map[string]source{}, map[string]source{}
	for name, processor := range map[string]string{"64bit": "amd64", "arm64": "arm64"} {
		s := archive(version, processor)
		s.Hash = fmt.Sprintf("%x", sums[s.Folder+".zip"])
		sources[name], updates[name] = s, archive("$version", processor)
	}
	text, err := json.MarshalIndent(map[string]any{
		"version":      version,
		"description":  about,
		"homepage":     homepage,
		"license":      "MIT",
		"architecture": sources,
		"bin":          program + ".exe",
		"checkver":     "github",
		"autoupdate": map[string]any{
			"architecture": updates,
			"hash":         map[string]string{"url": "$baseurl/checksums.txt"},
		},
	}, "", "    ")
	return append(text, '\n'), err
}
