package config

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/mcp-bridge/bridge/internal/files"
)

// Pair reads the certificate and its private key. The error names the faulty file.
func (t TLS) Pair() (*tls.Certificate, error) {
	pair, key, err := t.pair()
	if err != nil {
		path := map[string]string{"cert_file": t.CertFile, "key_file": t.KeyFile}[key]
		return nil, fmt.Errorf("%s %s: %w", key, path, err)
	}
	return pair, nil
}

// pair is Pair, but returns the key of the setting with the faulty file, and an error without the path.
func (t TLS) pair() (pair *tls.Certificate, key string, err error) {
	cert, err := readFile(t.CertFile)
	if err != nil {
		return nil, "cert_file", files.Reason(err)
	}
	own, err := readFile(t.KeyFile)
	if err != nil {
		return nil, "key_file", files.Reason(err)
	}
	read, err := tls.X509KeyPair(cert, own)
	if err == nil {
		return &read, "", nil
	}
	// The library does not name the faulty file. It parses the certificate first, and compares the private key last.
	key = "key_file"
	if !bytes.Contains(cert, []byte("-----BEGIN CERTIFICATE-----")) || strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "certificate input") {
		key = "cert_file"
	}
	return nil, key, errors.New(strings.TrimPrefix(err.Error(), "tls: "))
}

// TLS names the files of the bridge's certificate. The bridge reads them again after a change.
type TLS struct {
	// CertFile is a PEM file with the certificate, followed by its intermediate certificates.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file with the private key of the certificate. CertFile and KeyFile are both set, or both empty.
	KeyFile string `yaml:"key_file"`
}
