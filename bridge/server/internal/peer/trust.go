package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/seal"
)

// trust is mutual TLS without files. Each start makes a certificate with the instance's name, signed by a key that
// is derived from the secret of the cluster.
type trust struct {
	own  tls.Certificate
	pool *x509.CertPool // one authority for each secret
}

// host is the name in an instance's certificate.
func host(id string) string { return strings.ToLower(id) + ".instance.mcp-bridge.internal" }

// newTrust makes the certificate of an instance, signed by the authority of the first secret. newTrust trusts the
// authorities of all secrets.
func newTrust(id string, secrets []string) (*trust, error) {
	t := &trust{pool: x509.NewCertPool()}
	for i, secret := range secrets {
		key := ed25519.NewKeyFromSeed(seal.Derive(secret, "cluster authority", ed25519.SeedSize))
		// Clocks may differ. The secret decides who is an instance, so expiry would protect nothing.
		from, until := time.Now().Add(-24*time.Hour), time.Now().AddDate(10, 0, 0)
		ca := &x509.Certificate{
			SerialNumber:          big.NewInt(1),
			Subject:               pkix.Name{CommonName: "mcp-bridge cluster"},
			NotBefore:             from,
			NotAfter:              until,
			IsCA:                  true,
			BasicConstraintsValid: true,
			KeyUsage:              x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		if ca, err = x509.ParseCertificate(der); err != nil {
			return nil, err
		}
		t.pool.AddCert(ca)
		if i > 0 {
			continue
		}
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2),
			Subject:      pkix.Name{CommonName: id},
			DNSNames:     []string{host(id)},
			NotBefore:    from,
			NotAfter:     until,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if der, err = x509.CreateCertificate(rand.Reader, leaf, ca, public, key); err != nil {
			return nil, err
		}
		t.own = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	}
	return t, nil
}

// server returns the settings of the listener, which serves only instances.
func (t *trust) server() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{t.own},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    t.pool,
	}
}

// anyone returns the settings for a connection to any instance at an address.
func (t *trust) anyone() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{t.own},
		InsecureSkipVerify: true, // any name is accepted; the signature is verified below
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: t.pool})
			return err
		},
	}
}

// idOf returns the id in the other instance's certificate.
func idOf(s *tls.ConnectionState) string {
	if s == nil || len(s.PeerCertificates) == 0 {
		return ""
	}
	return s.PeerCertificates[0].Subject.CommonName
}

// client returns the settings for connections to one instance. TLS refuses any other instance, at any address.
func (t *trust) client(id string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{t.own},
		RootCAs:      t.pool,
		ServerName:   host(id),
	}
}
