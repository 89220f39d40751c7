// Package inspect has the commands that look at a server and try it as its
// client: tools, prompts, resources and call.
//
// A server is reached exactly as when it is served, through a bridge in the same
// process, so what works here works there. Results are shown as they came: no
// field of an answer is lost and no digit changed. What a server sends reaches a
// terminal only with everything hidden in it made visible, and no file gets a
// name of a server's choosing. Every command ends all that it has started, and
// its error has an exit code (package exit).
//
// It serves nothing and keeps nothing from one command to the next.
package inspect
