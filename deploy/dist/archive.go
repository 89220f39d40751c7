package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"time"
)

// file is a file in an archive.
type file struct {
	name string // with slashes
	data []byte
	mode int64
}

// tarball packs files into a folder. All files belong to root and have the same time.
func tarball(folder string, at time.Time, files []file) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := tar.Header{
			Typeflag: tar.TypeReg,
			Name:     path.Join(folder, f.name),
			Size:     int64(len(f.data)),
			Mode:     f.mode,
			ModTime:  at,
			Uname:    "root",
			Gname:    "root",
			Format:   tar.FormatUSTAR,
		}
		if err := t.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zipped is tarball for systems that use zip files.
func zipped(folder string, at time.Time, files []file) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := zip.FileHeader{
			Name:     path.Join(folder, f.name),
			Method:   zip.Deflate,
			Modified: at,
		}
		h.SetMode(fs.FileMode(f.mode))
		w, err := z.CreateHeader(&h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
