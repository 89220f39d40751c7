// Package job has Windows end a program together with all that it has started. On other
// systems process groups do that, and the package has nothing.
package process
