package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// linuxPackages makes the packages for Debian and Fedora from the files of an archive, with nfpm. It returns the
// packages by name. It works in folder, which must be empty.
func linuxPackages(ctx context.Context, root, folder, processor, version string, at time.Time, files []file) ([]file, error) {
	nfpm := exec.CommandContext(ctx, "go", "tool", "-n", "nfpm")
	nfpm.Dir = filepath.Join(root, "deploy", "check") // the module that has nfpm
	tool, err := output(nfpm)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"nfpm.yaml", "postinstall.sh", "preremove.sh", "postremove.sh"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "packages", name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, text, 0o755})
	}
	for _, f := range files {
		to := filepath.Join(folder, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		data := f.data
		if strings.HasSuffix(f.name, ".service") { // packages install programs in /usr/bin
			data = bytes.ReplaceAll(data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
		}
		if err := os.WriteFile(to, data, os.FileMode(f.mode)); err != nil {
			return nil, err
		}
		if err := os.Chtimes(to, at, at); err != nil {
			return nil, err
		}
	}
	made := filepath.Join(folder, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return nil, err
	}
	for _, kind := range []string{"deb", "rpm"} {
		c := exec.CommandContext(ctx, tool, "package", "--config", "nfpm.yaml", "--packager", kind, "--target", made)
		c.Dir = folder
		c.Env = append(os.Environ(), "GOARCH="+processor, "VERSION="+semantic(version), "SOURCE_DATE_EPOCH="+strconv.FormatInt(at.Unix(), 10))
		if _, err := output(c); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(made)
	if err != nil {
		return nil, err
	}
	var all []file
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(made, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: e.Name(), data: data})
	}
	return all, nil
}
