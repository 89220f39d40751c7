// Command petstore is a small REST API for trying out the bridge: the pets of api/pets.yaml, in memory.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

type pet struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

type shelter struct {
	key string

	mu   sync.Mutex // guards pets
	pets []pet
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address to listen on; port 0 picks a free one")
	key := flag.String("key", "shelter-key", "what callers have to show as X-Api-Key")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the pets are at http://%s/v1\n", l.Addr())
	log.Fatal(http.Serve(l, newShelter(*key)))
}

// newShelter returns the API with some pets.
func newShelter(key string) http.Handler {
	s := &shelter{key: key, pets: []pet{{1, "Momo", "cat"}, {2, "Rex", "dog"}, {3, "Kassiopeia", "tortoise"}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pets", s.list)
	mux.HandleFunc("POST /v1/pets", s.add)
	mux.HandleFunc("GET /v1/pets/{id}", s.get)
	mux.HandleFunc("PATCH /v1/pets/{id}", s.rename)
	mux.HandleFunc("DELETE /v1/pets/{id}", s.remove)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != s.key {
			problem(w, http.StatusUnauthorized, "The key is missing or wrong.")
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
}

func (s *shelter) list(w http.ResponseWriter, r *http.Request) {
	found := []pet{}
	limit, err := strconv.Atoi(r.FormValue("limit"))
	for _, p := range s.pets {
		if kind := r.FormValue("kind"); (kind == "" || kind == p.Kind) && (err != nil || len(found) < limit) {
			found = append(found, p)
		}
	}
	answer(w, http.StatusOK, found)
}

func (s *shelter) add(w http.ResponseWriter, r *http.Request) {
	var p pet
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Name == "" || p.Kind == "" {
		problem(w, http.StatusUnprocessableEntity, "A pet has a name and a kind.")
		return
	}
	p.ID = 1
	for _, other := range s.pets {
		p.ID = max(p.ID, other.ID+1)
	}
	s.pets = append(s.pets, p)
	answer(w, http.StatusCreated, p)
}

// find returns the index of the pet in the path. If there is no such pet, it answers the request with an error.
func (s *shelter) find(w http.ResponseWriter, r *http.Request) int {
	i := slices.IndexFunc(s.pets, func(p pet) bool { return strconv.Itoa(p.ID) == r.PathValue("id") })
	if i < 0 {
		problem(w, http.StatusNotFound, "There is no pet "+r.PathValue("id")+".")
	}
	return i
}

func (s *shelter) get(w http.ResponseWriter, r *http.Request) {
	if i := s.find(w, r); i >= 0 {
		answer(w, http.StatusOK, s.pets[i])
	}
}

func (s *shelter) rename(w http.ResponseWriter, r *http.Request) {
	var change struct{ Name, By string }
	if i := s.find(w, r); i >= 0 {
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil || change.Name == "" {
			problem(w, http.StatusUnprocessableEntity, "The new name is missing.")
			return
		}
		s.pets[i].Name = change.Name
		answer(w, http.StatusOK, s.pets[i])
	}
}

func (s *shelter) remove(w http.ResponseWriter, r *http.Request) {
	if i := s.find(w, r); i >= 0 {
		s.pets = slices.Delete(s.pets, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a disconnected caller needs no answer
}

// problem sends an error in the form of RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
