package front

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
)

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.3rem}.host{font-size:1.7rem;font-weight:700;overflow-wrap:anywhere;margin:.3rem 0}.note{color:#555;overflow-wrap:anywhere}
.warn{border-left:4px solid #b45309;padding:.4rem .8rem;background:#fff7ed}button{font:inherit;padding:.5rem 1.4rem;margin:1rem .6rem 0 0}
@media(prefers-color-scheme:dark){body{color:#eee;background:#181818}.note{color:#aaa}.warn{background:#33240f}}`

// policy forbids frames and all loading (I-105). It has no form-action, because browsers would also apply form-action
// to the provider's address and all its redirects.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'"
}()

type pageData struct {
	Text                                              string
	Name, Resource, Host, Redirect, Document, Request string
	Action, Back                                      string
	Machine                                           bool
	Scopes                                            []string
}

// page shows a page with one text.
func page(w http.ResponseWriter, status int, text string) { show(w, status, pageData{Text: text}) }

// question shows the consent page.
func (f *Front) question(w http.ResponseWriter, r *request, client string) {
	u, k := classify(r.Redirect)
	if k == dangerous {
		page(w, http.StatusBadRequest, pageEnded)
		return
	}
	p := pageData{
		Name:     r.Name,
		Resource: r.Resource,
		Host:     u.Host,
		Redirect: r.Redirect,
		Request:  f.sealed("request", r),
		Action:   f.base + "/oauth/consent",
		Machine:  k != web,
		Scopes:   r.Scopes,
	}
	if p.Name == "" {
		p.Name = "A program without a name"
	}
	if k == program {
		p.Host = u.Scheme + "://" + u.Host
	}
	if isDocument(client) {
		p.Document = client
	}
	show(w, http.StatusOK, p)
}

// html returns the page. Each value stands in text or in a quoted attribute, for which html.EscapeString is made, and
// Back is a web address. html/template would add 13 MB to the program: it calls methods by name, so the linker would
// keep every exported method of every library.
func (p *pageData) html() string {
	var b strings.Builder
	write := func(format string, values ...string) {
		escaped := make([]any, len(values))
		for i, v := range values {
			escaped[i] = html.EscapeString(v)
		}
		fmt.Fprintf(&b, format, escaped...)
	}
	b.WriteString(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>mcp-bridge</title><style>` + style + "</style></head><body>\n")
	if p.Text != "" {
		write("<p>%s</p>", p.Text)
		if p.Back != "" {
			write(`<p><a rel="noreferrer" href="%s">Go back to %s</a></p>`, p.Back, p.Host)
		}
	} else {
		write("<h1>%s wants to use %s as you</h1>\n", p.Name, p.Resource)
		write("<p>If you allow it, you sign in, and are sent to</p><p class=\"host\">%s</p>\n<p class=\"note\">%s", p.Host, p.Redirect)
		if p.Document != "" {
			write("<br>The program says who it is at %s", p.Document)
		}
		write("</p>\n")
		switch {
		case p.Machine:
			write(`<p class="warn">That is a program on your own computer. Any program there can say that it is %s. Allow this only if you have just started it yourself.</p>`, p.Name)
		case p.Document == "":
			write(`<p class="warn">The name %s is what the program says of itself. Look at the address.</p>`, p.Name)
		}
		if len(p.Scopes) > 0 {
			write("\n<p>It asks for:</p><ul>")
			for _, s := range p.Scopes {
				write("<li>%s</li>", s)
			}
			write("</ul>")
		}
		write("\n"+`<form method="post" action="%s"><input type="hidden" name="request" value="%s"><button name="answer" value="allow">Allow</button><button name="answer" value="deny">Do not allow</button></form>`, p.Action, p.Request)
	}
	b.WriteString("\n</body></html>\n")
	return b.String()
}

func show(w http.ResponseWriter, status int, p pageData) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, the form would be sent without Origin
	w.WriteHeader(status)
	_, _ = io.WriteString(w, p.html()) // a disconnected browser needs no answer
}
