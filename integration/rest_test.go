package integration

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/internal/openapitest"
)

// TestREST offers three HTTP APIs as one server, by the published documents of two,
// and has the TypeScript clients of both SDKs and both eras use them over each
// transport that both have: eras/rest.mjs has what must come of it.
func TestREST(t *testing.T) {
	t.Parallel()
	api := at(t, "127.0.0.1:0", publishedAPIs(t))
	file := configureNamed(t, map[string]any{"servers": map[string]any{
		"petstore": map[string]any{"rest": map[string]any{
			"openapi": openapitest.Shared(t, "petstore-3.0.yaml"), "base_url": api.URL + "/v3",
			"auth": map[string]any{"value": petKey},
		}},
		"museum": map[string]any{"rest": map[string]any{
			"openapi": openapitest.Shared(t, "museum-3.1.yaml"), "base_url": api.URL + "/museum",
			"auth": map[string]any{"user": "guide", "password": museumPassword},
		}},
		"models": map[string]any{"rest": map[string]any{
			"openapi": absolute(t, "testdata/models.yaml"), "base_url": api.URL + "/v1",
			"auth": map[string]any{"bearer": modelToken},
		}},
	}})
	p := serveFile(t, file)
	for _, where := range []target{
		{transport: "streamable", url: p.base + "/mcp"},
		{transport: "stdio", command: connectTo(t, file)},
	} {
		if !whole && where.transport != "streamable" {
			continue
		}
		t.Run(where.transport, func(t *testing.T) {
			t.Parallel()
			var cells []eraCell
			for _, client := range []struct{ sdk, revision string }{{"ts1", legacy}, {"ts2", legacy}, {"ts2", modern}} {
				cells = append(cells, eraCell{
					SDK: client.sdk, Client: client.revision, Server: legacy, By: "rest", Upstream: "http", Script: "rest.mjs",
					Transport: where.transport, URL: where.url, Command: where.command,
				})
			}
			playCells(t, cells, &outcomes{of: map[outcome]string{}})
		})
	}
}

// What the bridge is to show to each API.
const petKey, museumPassword, modelToken = "the-key-of-the-pets", "the-word-of-the-guide", "sk-of-the-models"

// publishedAPIs answers for the three APIs, with what it got in the answers.
func publishedAPIs(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	petstoreAPI(mux)
	museumAPI(mux)
	modelAPI(t, mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			t.Errorf("nobody expects %s %s", r.Method, r.RequestURI)
		}
		mux.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, kind, body string) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

const jsonType, problemType = "application/json", "application/problem+json"

func petstoreAPI(mux *http.ServeMux) {
	mux.HandleFunc("GET /v3/pet/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); {
		case r.Header.Get("api_key") != petKey:
			answer(w, http.StatusUnauthorized, jsonType, `{"message":"no key"}`)
		case id == "404":
			answer(w, http.StatusNotFound, problemType, `{"title":"Not found","detail":"There is no pet 404"}`)
		default:
			answer(w, http.StatusOK, jsonType, fmt.Sprintf(`{"id":%s,"name":"pet %s","photoUrls":[]}`, id, id))
		}
	})
	mux.HandleFunc("GET /v3/pet/findByStatus", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, jsonType, fmt.Sprintf(`[{"id":9007199254740993,"name":"big","photoUrls":[],"status":%q}]`, r.URL.Query().Get("status")))
	})
	mux.HandleFunc("POST /v3/pet", func(w http.ResponseWriter, r *http.Request) {
		pet := map[string]any{"id": 10}
		if err := json.NewDecoder(r.Body).Decode(&pet); err != nil {
			answer(w, http.StatusBadRequest, "text/plain", err.Error())
			return
		}
		text, _ := json.Marshal(pet)
		answer(w, http.StatusOK, jsonType, string(text))
	})
	mux.HandleFunc("POST /v3/pet/{id}/uploadImage", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		message := fmt.Sprintf("pet %s, %s: %s", r.PathValue("id"), r.URL.Query().Get("additionalMetadata"), hex.EncodeToString(data))
		answer(w, http.StatusOK, jsonType, fmt.Sprintf(`{"code":200,"type":%q,"message":%q}`, r.Header.Get("Content-Type"), message))
	})
}

func museumAPI(mux *http.ServeMux) {
	guarded := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "guide" || password != museumPassword {
				answer(w, http.StatusUnauthorized, problemType, `{"title":"Who are you?"}`)
				return
			}
			h(w, r)
		})
	}
	guarded("GET /museum/museum-hours", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.RawQuery; q != "startDate=2026-11-21&limit=2" {
			answer(w, http.StatusBadRequest, problemType, fmt.Sprintf(`{"title":%q}`, q))
			return
		}
		answer(w, http.StatusOK, jsonType, `[{"date":"2026-11-21","timeOpen":"09:00","timeClose":"18:00"},{"date":"2026-11-22","timeOpen":"09:00","timeClose":"18:00"}]`)
	})
	guarded("GET /museum/special-events/{id}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, problemType, `{"type":"about:blank","title":"No such event","status":404,"detail":"It was cancelled."}`)
	})
	guarded("DELETE /museum/special-events/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	guarded("POST /museum/tickets", func(w http.ResponseWriter, r *http.Request) {
		var ticket struct{ Email, TicketType, TicketDate string }
		if err := json.NewDecoder(r.Body).Decode(&ticket); err != nil {
			answer(w, http.StatusBadRequest, problemType, fmt.Sprintf(`{"title":%q}`, err))
			return
		}
		answer(w, http.StatusCreated, jsonType, fmt.Sprintf(`{"ticketType":%q,"ticketDate":%q,"message":"Enjoy","confirmationCode":"for %s"}`,
			ticket.TicketType, ticket.TicketDate, ticket.Email))
	})
	guarded("GET /museum/tickets/{id}/qr", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "image/png", "\x89PNG\r\n\x1a\n")
	})
}

func modelAPI(t *testing.T, mux *http.ServeMux) {
	guarded := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+modelToken {
				answer(w, http.StatusUnauthorized, jsonType, `{"error":{"message":"no token"}}`)
				return
			}
			h(w, r)
		})
	}
	var mu sync.Mutex // guards going
	going := map[string]chan struct{}{}
	goOn := func(name string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if going[name] == nil {
			going[name] = make(chan struct{})
		}
		return going[name]
	}
	guarded("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, jsonType, `{"object":"list","data":[{"id":"gpt-one","object":"model","created":1,"owned_by":"us"},{"id":"gpt-two","object":"model","created":2,"owned_by":"us"}]}`)
	})
	guarded("GET /v1/models/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		close(goOn(name))
		answer(w, http.StatusOK, jsonType, fmt.Sprintf(`{"id":%q,"object":"model","created":1,"owned_by":"us"}`, name))
	})
	guarded("POST /v1/files", func(w http.ResponseWriter, r *http.Request) {
		file, head, err := r.FormFile("file")
		if err != nil {
			answer(w, http.StatusBadRequest, jsonType, fmt.Sprintf(`{"error":{"message":%q}}`, err))
			return
		}
		defer file.Close()
		data, _ := io.ReadAll(file)
		text, _ := json.Marshal(map[string]any{
			"id": "file-1", "object": "file", "bytes": len(data), "created_at": 1, "status": "processed",
			"filename": head.Filename, "purpose": r.FormValue("purpose"),
		})
		answer(w, http.StatusOK, jsonType, string(text))
	})
	guarded("POST /v1/audio/speech", func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Input, Voice string }
		_ = json.NewDecoder(r.Body).Decode(&q)
		answer(w, http.StatusOK, "audio/mpeg", "ID3 "+q.Input+" "+q.Voice)
	})
	guarded("POST /v1/embeddings", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusTooManyRequests, jsonType, `{"error":{"message":"Slow down","type":"rate_limit"}}`)
	})
	guarded("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Stream   bool
			Messages []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			answer(w, http.StatusBadRequest, jsonType, fmt.Sprintf(`{"error":{"message":%q}}`, err))
			return
		}
		if !q.Stream {
			answer(w, http.StatusOK, jsonType, fmt.Sprintf(`{"id":"c1","object":"chat.completion","created":1,"model":"gpt-one","choices":[`+
				`{"index":0,"finish_reason":"stop","logprobs":null,"message":{"role":"assistant","content":"You said %s","refusal":null}}]}`, q.Messages[0].Content))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i, word := range []string{"one", "two", "three"} {
			if i == 1 {
				select {
				case <-goOn(q.Messages[0].Content):
				case <-r.Context().Done():
					return
				}
			}
			fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
}

// at serves a handler on an address of its own, or on the one given.
func at(t *testing.T, address string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}
