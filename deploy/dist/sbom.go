package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
)

// contents lists the parts of a program.
type contents struct {
	sum     [sha256.Size]byte // checksum of the program
	modules []module          // the program's own module, then Go's library, then the modules of others
}

// module is a Go module whose code is in a program.
type module struct {
	path, version string
	hash          string   // in the form of go.sum, h1:…; empty if there is none
	licence       string   // SPDX expression
	texts         []string // texts of its licences and notices
}

// contentsOf reads the list of modules from the program itself. root is the folder of the program's own module.
func contentsOf(ctx context.Context, program, root string) (*contents, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(code))
	if err != nil {
		return nil, fmt.Errorf("read the modules of %s: %w", program, err)
	}
	goroot, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	c := &contents{sum: sha256.Sum256(code)}
	add := func(path, version, hash, dir string) error {
		m := module{
			path:    path,
			version: version,
			hash:    hash,
		}
		err := m.readLicences(dir)
		c.modules = append(c.modules, m)
		return err
	}
	if err := errors.Join(add(info.Main.Path, "", "", root), add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "", goroot)); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		args = append(args, d.Path+"@"+d.Version)
	}
	list := exec.CommandContext(ctx, "go", args...)
	list.Dir = root
	list.Env = append(os.Environ(), "GOFLAGS=")
	out, err := output(list)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var m struct{ Path, Version, Sum, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if err := add(m.Path, m.Version, m.Sum, m.Dir); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.modules[2:], func(m, b module) int { return strings.Compare(m.path, b.path) })
	return c, nil
}

// licenceFile matches the names of files with licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// readLicences reads the licences in the top folder of the module.
func (m *module) readLicences(dir string) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL && !slices.Contains(ids, match.ID) && match.ID != "GooglePatentsFile" && match.ID != "GooglePatentClause" {
				ids = append(ids, match.ID)
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s has no licence that is known, in %s", m.path, dir)
	}
	slices.Sort(ids)
	m.licence = strings.Join(ids, " AND ")
	return nil
}

// licences returns the texts that accompany the program, for all modules of others.
func (c *contents) licences() []byte {
	var b bytes.Buffer
	b.WriteString("mcp-bridge is made with these modules of others.\n")
	for _, m := range c.modules[1:] {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n", strings.Repeat("=", 80), m.path, m.version, m.licence)
		for _, text := range m.texts {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
	}
	return b.Bytes()
}

// These types are the parts of an SPDX 2.3 document that dist writes.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		Licence       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []pkg          `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	pkg struct {
		ID        string      `json:"SPDXID"`
		Name      string      `json:"name"`
		Version   string      `json:"versionInfo"`
		Purpose   string      `json:"primaryPackagePurpose"`
		Download  string      `json:"downloadLocation"`
		Analyzed  bool        `json:"filesAnalyzed"`
		Checksums []checksum  `json:"checksums,omitempty"`
		Concluded string      `json:"licenseConcluded"`
		Declared  string      `json:"licenseDeclared"`
		Copyright string      `json:"copyrightText"`
		Refs      []reference `json:"externalRefs"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// noAssertion is SPDX's value for "not stated".
const noAssertion = "NOASSERTION"

// spdx returns the contents as an SPDX document. The checksum of the program is the checksum of its file, and the
// checksum of a module is the hash in go.sum.
func (c *contents) spdx(name, version string, at time.Time) ([]byte, error) {
	d := document{
		Version:   "SPDX-2.3",
		Licence:   "CC0-1.0",
		ID:        "SPDXRef-DOCUMENT",
		Name:      name,
		Namespace: fmt.Sprintf("https://github.com/mcp-bridge/bridge/spdx/%s-%x", name, c.sum[:16]),
		Creation:  creation{at.Format(time.RFC3339), []string{"Tool: github.com/mcp-bridge/bridge/deploy/dist"}},
	}
	for i, m := range c.modules {
		p := pkg{
			ID:        fmt.Sprintf("SPDXRef-Package-%d", i),
			Name:      m.path,
			Version:   m.version,
			Purpose:   "LIBRARY",
			Download:  noAssertion,
			Concluded: noAssertion,
			Declared:  m.licence,
			Copyright: noAssertion,
		}
		switch {
		case i == 0:
			p.Version, p.Purpose = "v"+version, "APPLICATION"
			p.Checksums = []checksum{{"SHA256", hex.EncodeToString(c.sum[:])}}
			d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", p.ID})
		case m.hash != "":
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.hash, "h1:"))
			if err != nil {
				return nil, fmt.Errorf("the sum of %s: %w", m.path, err)
			}
			p.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum)}}
			fallthrough
		default:
			d.Relationships = append(d.Relationships, relationship{"SPDXRef-Package-0", "DEPENDS_ON", p.ID})
		}
		p.Refs = []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(p.Name) + "@" + p.Version}}
		d.Packages = append(d.Packages, p)
	}
	out, err := json.MarshalIndent(d, "", "  ")
	return append(out, '\n'), err
}
