//go:build !failpoints

package main

import (
	"net/http"
	"time"

	"github.com/warrenmq/warren/store"
)

// serveFailpoints: there are none in this build.
func (n *running) serveFailpoints(*http.ServeMux) {}

// disk is the file system of the log store.
func (n *running) disk() store.FS { return store.OSFS{} }

// beforeCatalogWrite is called before the catalog writes.
func (n *running) beforeCatalogWrite() func() { return nil }

// logKept is the group host's default.
const logKept = 0

// clockOffset is what is added to the machine's clock.
func clockOffset() time.Duration { return 0 }
