package management

import (
	_ "embed" // the document
	"net/http"
)

// openAPI describes the API for people and programs.
//
//go:embed openapi.yaml
var openAPI []byte

func (a *API) routeOpenAPI() {
	a.serve("GET /api/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		if _, err := a.authenticate(r); err != nil {
			a.refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		if _, err := w.Write(openAPI); err != nil {
			a.cfg.Logger.Debug("management answer not written", "err", err)
		}
	})
}

// serve registers a handler and notes its pattern. The handler sees the slashes that markSlashes has hidden.
func (a *API) serve(pattern string, h http.HandlerFunc) {
	names := wildcard.FindAllStringSubmatch(pattern, -1)
	a.patterns = append(a.patterns, pattern)
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		for _, n := range names {
			if r.PathValue(n[1]) == slashMark {
				r.SetPathValue(n[1], "/")
			}
		}
		h(w, r)
	})
}
