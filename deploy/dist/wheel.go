package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// wheelTags lists the names by which pip and uv know the platforms of the wheels. Go 1.26 needs macOS 12. The programs
// for Linux are static, so they run with every C library.
var wheelTags = map[string][]string{
	"linux/amd64":   {"manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"},
	"linux/arm64":   {"manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"},
	"darwin/amd64":  {"macosx_12_0_x86_64"},
	"darwin/arm64":  {"macosx_12_0_arm64"},
	"windows/amd64": {"win_amd64"},
	"windows/arm64": {"win_arm64"},
}

// wheel packs the program for a platform into a wheel. Installation of the wheel puts the program beside Python's other
// programs (Binary distribution format, "The .data directory"). The project is mcp-bridge-cli, because PyPI has another
// mcp-bridge.
func wheel(root, platform, version string, at time.Time, binary []byte, licences ...file) (name string, data []byte, err error) {
	description, err := os.ReadFile(filepath.Join(root, "deploy", "packages", "README.md"))
	if err != nil {
		return "", nil, err
	}
	tags := wheelTags[platform]
	version = wheelVersion(version)
	base := "mcp_bridge_cli-" + version
	script := program
	if strings.HasPrefix(platform, "windows/") {
		script += ".exe"
	}
	var head strings.Builder
	fmt.Fprintf(&head, "Wheel-Version: 1.0\nGenerator: mcp-bridge\nRoot-Is-Purelib: false\n")
	for _, tag := range tags {
		fmt.Fprintf(&head, "Tag: py3-none-%s\n", tag)
	}
	metadata := fmt.Sprintf("Metadata-Version: 2.4\nName: mcp-bridge-cli\nVersion: %s\nSummary: %s\nLicense-Expression: MIT\nProject-URL: Source, %s\n"+
		"Keywords: mcp,mcp-proxy,mcp-gateway,model-context-protocol\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n", version, about, homepage)
	info := base + ".dist-info/"
	files := []file{{base + ".data/scripts/" + script, binary, 0o755}}
	for _, f := range licences {
		metadata += "License-File: " + f.name + "\n"
		files = append(files, file{info + "licenses/" + f.name, f.data, f.mode})
	}
	files = append(files, file{info + "METADATA", []byte(metadata + "\n" + string(description)), 0o644}, file{info + "WHEEL", []byte(head.String()), 0o644})
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, file{info + "RECORD", []byte(record.String()), 0o644})
	data, err = zipped("", at, files)
	return base + "-py3-none-" + strings.Join(slices.Sorted(slices.Values(tags)), ".") + ".whl", data, err
}

// candidate matches versions such as 1.2.3 and 1.2.3-rc.1.
var candidate = regexp.MustCompile(`^(\d+(?:\.\d+)*)(?:-(alpha|beta|rc)\.?(\d+))?(?:-(.+))?$`)

// wheelVersion returns a version in Python's form (PEP 440). A version between releases becomes a local version, which
// PyPI refuses.
func wheelVersion(version string) string {
	m := candidate.FindStringSubmatch(version)
	if m == nil {
		return "0.0.0+" + local(version)
	}
	version = m[1]
	if m[2] != "" {
		version += map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3]
	}
	if m[4] != "" {
		version += "+" + local(m[4])
	}
	return version
}

// local returns a text as the local part of a version.
func local(text string) string {
	return strings.ToLower(strings.Trim(separators.ReplaceAllString(text, "."), "."))
}
