package wiretest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"
)

// Play plays the dialogues of the files that match pattern, each in a bubble of
// fake time. site makes the site under test for the server.
//
// A file has a comment and these sections, in the order in which they happen:
//
//	-- NAME: METHOD PATH --  a request: headers, an empty line, the body
//	-- NAME --               the response since the last section of that name: first
//	                         the status and the type, then some headers, then the
//	                         body, and (end) when the response is over
//	-- NAME leaves --        the client breaks the connection
//	-- server --             lines that the server sends; "answer JSON" answers the
//	                         oldest call of the tool wait
//	-- server got --         messages to the server since the last such section
//	-- after DURATION --     time passes
//
// Names that the bridge makes up are numbered as they appear: {s1}, {s2} … for
// sessions, {p1} … for the streams of POSTs, and {g1} … for the streams of GETs.
func Play(t *testing.T, pattern string, site func(t *testing.T, s *Server) *Site) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := &Server{}
				p := &player{
					t:       t,
					s:       s,
					site:    site(t, s),
					replies: map[string]*Reply{},
					begun:   map[string]bool{},
					names:   map[string]string{},
				}
				for _, f := range a.Files {
					p.play(f.Name, strings.TrimRight(string(f.Data), "\n"))
				}
				for name, r := range p.replies {
					if rest := p.heard(name, r); rest != "" {
						t.Errorf("%s: %s is left over:\n%s", file, name, rest)
					}
					r.Leave()
				}
			})
		})
	}
}

type player struct {
	t       *testing.T
	s       *Server
	site    *Site
	replies map[string]*Reply
	begun   map[string]bool   // NAME is true once the status was shown, and "NAME ended" once the end was shown
	names   map[string]string // maps each made-up name to its name in the dialogue
	reals   []string          // pairs for a strings.Replacer: the name in the dialogue, and the made-up name
	counts  [3]int
}

func (p *player) play(step, text string) {
	p.t.Helper()
	name, request, isRequest := strings.Cut(step, ": ")
	switch {
	case isRequest:
		method, path, _ := strings.Cut(request, " ")
		head, body, _ := strings.Cut(text+"\n", "\n\n")
		if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
			head, body = "", text
		}
		var header []string
		for line := range strings.Lines(head) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
			if k != "" {
				header = append(header, k, p.real(strings.TrimSpace(v)))
			}
		}
		p.replies[name] = p.site.Do(method, p.real(path), strings.TrimSuffix(p.real(body), "\n"), header...)
		delete(p.begun, name)
		delete(p.begun, name+" ended")
	case strings.HasSuffix(step, " leaves"):
		p.replies[strings.TrimSuffix(step, " leaves")].Leave()
	case step == "server":
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if result, ok := strings.CutPrefix(line, "answer "); ok {
				p.s.Answer(result)
			} else {
				p.s.Say(line)
			}
		}
	case step == "server got":
		synctest.Wait()
		p.compare(step, strings.Join(p.s.Got(), "\n"), text)
	case strings.HasPrefix(step, "after "):
		d, err := time.ParseDuration(strings.TrimPrefix(step, "after "))
		if err != nil {
			p.t.Fatal(err)
		}
		Advance(d)
	case p.replies[step] != nil:
		synctest.Wait()
		p.compare(step, p.heard(step, p.replies[step]), text)
	default:
		p.t.Fatalf("section %q: no such request", step)
	}
	synctest.Wait()
}

func (p *player) compare(step, got, want string) {
	p.t.Helper()
	got, want = trailing.ReplaceAllString(got, ""), trailing.ReplaceAllString(want, "")
	if got != want {
		p.t.Errorf("%s:\ngot\n%s\nwant\n%s", step, got, want)
	}
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// shown are the headers that a dialogue shows.
var shown = []string{"Mcp-Session-Id", "Allow", "Retry-After", "X-Accel-Buffering", "Cache-Control"}

// heard returns the text that has arrived since the last call.
func (p *player) heard(name string, r *Reply) string {
	var out strings.Builder
	if !p.begun[name] && r.Status() != 0 {
		p.begun[name] = true
		kind, _, _ := strings.Cut(r.Header("Content-Type"), ";")
		fmt.Fprintln(&out, strings.TrimSpace(fmt.Sprintf("%d %s", r.Status(), kind)))
		for _, h := range shown {
			if v := r.Header(h); v != "" && (r.Status() != http.StatusOK || h == "Mcp-Session-Id") {
				fmt.Fprintf(&out, "%s: %s\n", h, v)
			}
		}
	}
	out.WriteString(r.Take())
	text := strings.TrimRight(out.String(), "\n")
	if r.Over() && r.Err() == nil && !p.begun[name+" ended"] {
		p.begun[name+" ended"] = true
		text += "\n(end)"
	}
	return strings.TrimLeft(p.called(text), "\n")
}

// made matches the names that the bridge makes up.
var made = regexp.MustCompile(`((?:Mcp-Session-Id: |sessionId=)([A-Z2-7]{26}))|(?:id: ([pg])([A-Z2-7]{12})-)`)

// called replaces names that the bridge made up by names in the dialogue.
func (p *player) called(text string) string {
	for _, m := range made.FindAllStringSubmatch(text, -1) {
		real, kind := m[2], 0
		if m[4] != "" {
			real, kind = m[3]+m[4], 1+strings.Index("pg", m[3])
		}
		if p.names[real] == "" {
			p.counts[kind]++
			p.names[real] = fmt.Sprintf("{%c%d}", "spg"[kind], p.counts[kind])
			p.reals = append(p.reals, p.names[real], real)
		}
	}
	for real, name := range p.names {
		text = strings.ReplaceAll(text, real, name)
	}
	return text
}

// real reverses called.
func (p *player) real(text string) string { return strings.NewReplacer(p.reals...).Replace(text) }
