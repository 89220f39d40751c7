package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrURL lists the valid forms of an address.
var ErrURL = errors.New("must be redis://USER:PASSWORD@HOST:PORT/DB, redis+sentinel://HOST1,HOST2/MASTER/DB or redis+cluster://HOST1,HOST2; rediss instead of redis is TLS")

// ParseURL reads the address of a store, and opens no connection. Its error never contains
// the address, which may contain a password.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	// url.Parse does not accept several hosts, so they are parsed apart.
	at := strings.LastIndex(rest, "@") + 1
	hosts, path, _ := strings.Cut(rest[at:], "/")
	u, err := url.Parse(base + "://" + rest[:at] + "host/" + path)
	if err != nil || base != "redis" && base != "rediss" || hosts == "" || strings.ContainsAny(hosts, "?#") || u.RawQuery != "" || u.Fragment != "" {
		return nil, ErrURL
	}
	o := &redis.UniversalOptions{ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1, Username: u.User.Username()}
	o.Password, _ = u.User.Password()
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if h, p, err := net.SplitHostPort(host); err != nil || h == "" || p == "" {
			return nil, ErrURL
		}
		o.Addrs = append(o.Addrs, host)
	}
	db := path
	switch kind {
	case "":
		if strings.Contains(scheme, "+") || len(o.Addrs) > 1 {
			return nil, ErrURL
		}
	case "cluster":
		if o.IsClusterMode = true; db != "" {
			return nil, ErrURL
		}
	case "sentinel":
		if o.MasterName, db, _ = strings.Cut(path, "/"); o.MasterName == "" {
			return nil, ErrURL
		}
	default:
		return nil, ErrURL
	}
	if db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return nil, ErrURL
		}
	}
	if base == "rediss" {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

// Connect makes a client for an address. caFile, which may be empty, has the certificates of
// authorities. It opens no connection yet.
func Connect(address, caFile string) (Client, error) {
	o, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	o.PoolSize, o.PipelinePoolSize = 1<<14, -1 // see atOnce
	if caFile != "" && o.TLSConfig != nil {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file has no certificate in PEM form")
		}
	}
	quiet()
	c := redis.NewUniversalClient(o)
	c.AddHook(make(atOnce, 10*runtime.GOMAXPROCS(0)))
	return c, nil
}

// atOnce bounds the commands in flight, and so the connections. The library's own bound has
// a side effect: after as many failures it tries once a second, and each command fails
// meanwhile. Clients would be refused although the store is back. So the library's bound is
// higher than any number of commands.
type atOnce chan struct{}

func (atOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a atOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := a.begin(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		defer a.end()
		return next(ctx, cmd)
	}
}

func (a atOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := a.begin(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		defer a.end()
		return next(ctx, cmds)
	}
}

func (a atOnce) begin(ctx context.Context) error {
	select {
	case a <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a atOnce) end() { <-a }

// quiet keeps the library from writing to stderr: its errors have the same text, and the beat logs
// them.
var quiet = sync.OnceFunc(func() { redis.SetLogger(quietLogger{}) })

type quietLogger struct{}

func (quietLogger) Printf(context.Context, string, ...any) {}
