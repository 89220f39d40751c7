package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"runtime"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Connect returns a client for the store at an address. caFile is a file with certificates of authorities, or empty.
// Connect does not open a connection.
func Connect(address, caFile string) (Client, error) {
	at, err := cluster.ParseURL(address)
	if err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		Addrs:                 at.Hosts,
		MasterName:            at.Master,
		IsClusterMode:         at.Several,
		DB:                    at.DB,
		Username:              at.Username,
		Password:              at.Password,
		ContextTimeoutEnabled: true,
		MaxRetries:            1,
		DialerRetries:         1,
		PoolSize:              1 << 14,
		PipelinePoolSize:      -1, // no pool of its own: see atOnce
	}
	if at.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if caFile != "" && at.TLS {
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

// atOnce bounds the commands in flight, and so the connections. The library's own bound, the size of its pool, has a
// side effect: after that many failures the library tries the store only once a second, and meanwhile fails each
// command, even if the store is back. So the library's bound is higher than any number of commands.
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

// quiet keeps the library from writing to stderr. Its errors have the same text, and each beat logs them.
var quiet = sync.OnceFunc(func() { redis.SetLogger(quietLogger{}) })

type quietLogger struct{}

func (quietLogger) Printf(context.Context, string, ...any) {}
