//go:build !failpoints

package main

import "net/http"

// serveFailpoints: there are none in this build.
func serveFailpoints(*http.ServeMux) {}
