package sign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// AWS signs requests by AWS Signature Version 4.
type AWS struct {
	// Region and Service are as in the API's documentation, such as us-east-1 and execute-api.
	Region  string `yaml:"region"`
	Service string `yaml:"service"`
	// AccessKey and SecretKey are the keys of an account. Temporary keys have a SessionToken too.
	AccessKey    string `yaml:"access_key"`
	SecretKey    string `yaml:"secret_key"`
	SessionToken string `yaml:"session_token"`
}

// Signer makes the signer.
func (a AWS) Signer() Signer {
	// S3 takes paths unchanged, and requires the hash of the body among the headers.
	s3 := strings.HasPrefix(a.Service, "s3")
	return &awsSigner{a, s3, v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s3 })}
}

type awsSigner struct {
	AWS
	s3     bool
	signer *v4.Signer
}

// Sign implements Signer.
func (a *awsSigner) Sign(ctx context.Context, r *http.Request, body []byte) error {
	return a.signAt(ctx, r, body, time.Now())
}

func (a *awsSigner) signAt(ctx context.Context, r *http.Request, body []byte, now time.Time) error {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	// Proxies may change other headers on the way, so these are not signed.
	u := *r.URL
	signed := &http.Request{Method: r.Method, URL: &u, Host: r.Host, Header: http.Header{}}
	for name, values := range r.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-") && name != "X-Amz-Date" && name != "X-Amz-Security-Token" {
			signed.Header[name] = values
		}
	}
	if a.s3 {
		signed.Header.Set("X-Amz-Content-Sha256", hash)
	}
	keys := aws.Credentials{AccessKeyID: a.AccessKey, SecretAccessKey: a.SecretKey, SessionToken: a.SessionToken}
	if err := a.signer.SignHTTP(ctx, keys, signed, hash, a.Service, a.Region, now); err != nil {
		return errors.New("the request cannot be signed")
	}
	maps.Copy(r.Header, signed.Header)
	return nil
}

// Close implements Signer.
func (a *awsSigner) Close() {}
