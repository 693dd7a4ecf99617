//go:build failpoints

package main

import (
	"net/http"

	"github.com/warrenmq/warren/failpoint"
)

// serveFailpoints lets tests on this machine arm failpoints.
func serveFailpoints(mux *http.ServeMux) {
	mux.HandleFunc(failpoint.Path, localOnly(failpoint.Handler))
}
