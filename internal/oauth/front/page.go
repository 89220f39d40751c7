package front

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
)

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.3rem}.host{font-size:1.7rem;font-weight:700;overflow-wrap:anywhere;margin:.3rem 0}.note{color:#555;overflow-wrap:anywhere}
.warn{border-left:4px solid #b45309;padding:.4rem .8rem;background:#fff7ed}button{font:inherit;padding:.5rem 1.4rem;margin:1rem .6rem 0 0}
@media(prefers-color-scheme:dark){body{color:#eee;background:#181818}.note{color:#aaa}.warn{background:#33240f}}`

var pages = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>mcp-bridge</title><style>` + style + `</style></head><body>
{{if .Text}}<p>{{.Text}}</p>{{if .Back}}<p><a rel="noreferrer" href="{{.Back}}">Go back to {{.Host}}</a></p>{{end}}{{else}}<h1>{{.Name}} wants to use {{.Resource}} as you</h1>
<p>If you allow it, you sign in, and are sent to</p><p class="host">{{.Host}}</p>
<p class="note">{{.Redirect}}{{if .Document}}<br>The program says who it is at {{.Document}}{{end}}</p>
{{if .Machine}}<p class="warn">That is a program on your own computer. Any program there can say that it is {{.Name}}. Allow this only if you have just started it yourself.</p>{{else if not .Document}}<p class="warn">The name {{.Name}} is what the program says of itself. Look at the address.</p>{{end}}
{{if .Scopes}}<p>It asks for:</p><ul>{{range .Scopes}}<li>{{.}}</li>{{end}}</ul>{{end}}
<form method="post" action="{{.Action}}"><input type="hidden" name="request" value="{{.Request}}"><button name="answer" value="allow">Allow</button><button name="answer" value="deny">Do not allow</button></form>{{end}}
</body></html>
`))

// policy forbids frames and all loading (I-105). It has no form-action: browsers would apply that
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
func (f *Front) question(w http.ResponseWriter, q *request, client string) {
	u, k := classify(q.Redirect)
	if k == dangerous {
		page(w, http.StatusBadRequest, pageEnded)
		return
	}
	s := pageData{Name: q.Name, Resource: q.Resource, Host: u.Host, Redirect: q.Redirect, Request: f.sealed("request", q), Action: f.base + "/oauth/consent", Machine: k != web, Scopes: q.Scopes}
	if s.Name == "" {
		s.Name = "A program without a name"
	}
	if k == program {
		s.Host = u.Scheme + "://" + u.Host
	}
	if isDocument(client) {
		s.Document = client
	}
	show(w, http.StatusOK, s)
}

func show(w http.ResponseWriter, status int, s pageData) {
	var text bytes.Buffer
	if err := pages.Execute(&text, s); err != nil { // the template cannot fail
		status = http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, the form would be sent without Origin
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // a disconnected browser needs no answer
}
