package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
	lists "github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// first lists the tools of the only server once, and logs their number or the error, so that the user sees a fault
// before the first client does. Everything that it opens is closed again.
func first(ctx context.Context, s *server.Server, c *config.Config, log *slog.Logger) {
	defer s.CloseUnused()
	if len(c.Access) > 0 { // act as the caller of --token-env
		ctx = server.WithPrincipal(ctx, c.Access[0].Name)
	}
	// A modern remote server does not need a legacy handshake.
	at := &c.Servers[0]
	n, err := tools(ctx, s, at.HTTP != nil && at.Era != config.EraLegacy && at.Offer != config.OfferLegacy)
	switch name := c.Servers[0].Name; {
	case ctx.Err() != nil:
	case err == nil:
		log.Info(name + ": " + count(n, "tool"))
	case s.Status()[0].Err == nil: // otherwise, the log already has the error
		log.Warn(name+": cannot list its tools", "err", err)
	}
}

// tools counts the tools of the only server, as a modern or a legacy client.
func tools(ctx context.Context, s *server.Server, modern bool) (n int, err error) {
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.ServeStdio(ctx, "", fromClient, toClient)
		toClient.CloseWithError(err)
		fromClient.CloseWithError(err)
	})
	defer wg.Wait()
	defer fromBridge.Close()
	defer toBridge.Close()
	answers := bufio.NewReader(fromBridge)
	ask := func(method string, params []byte) (*jsonrpc.Message, error) {
		id := fmt.Appendf(nil, "%q", method) // only one request at a time
		line := (&jsonrpc.Message{Method: method, Params: params}).Append(nil, id, nil)
		if _, err := toBridge.Write(append(line, '\n')); err != nil {
			return nil, err
		}
		for {
			line, err := answers.ReadBytes('\n')
			if err != nil {
				return nil, err
			}
			m, err := jsonrpc.Parse(line)
			switch {
			case err != nil:
				return nil, err
			case !m.IsResponse() || !bytes.Equal(m.ID, id): // a message that the server started
			case m.Error != nil && modern && gjson.GetBytes(m.Error, "code").Int() == jsonrpc.CodeMethodNotFound: // the server has no such method
				return jsonrpc.NewResult(nil, []byte("{}")), nil
			case m.Error != nil:
				return nil, errors.New(gjson.GetBytes(m.Error, "message").String())
			default:
				return m, nil
			}
		}
	}
	info := `{"name":"mcp-bridge","version":"` + server.Version() + `"}`
	if !modern {
		m, err := ask("initialize", []byte(`{"protocolVersion":"`+era.LatestLegacy+`","capabilities":{},"clientInfo":`+info+`}`))
		if err != nil || !gjson.GetBytes(m.Result, "capabilities.tools").Exists() {
			return 0, err
		}
		if _, err := io.WriteString(toBridge, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
			return 0, err
		}
	}
	meta := fmt.Appendf(nil, `{%q:%q,%q:{},%q:%s}`, era.KeyVersion, era.LatestModern, era.KeyCapabilities, era.KeyClientInfo, info)
	_, _ = lists.Tools.Pages(func(params []byte) (m *jsonrpc.Message, _ error) {
		if modern {
			params = rawjson.Set(params, "_meta", meta)
		}
		m, err = ask(lists.Tools.Method(), params)
		return m, err
	}, func(page []byte, _, _ bool) { n += int(gjson.GetBytes(page, "tools.#").Int()) })
	return n, err
}
