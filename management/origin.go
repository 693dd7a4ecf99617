package management

import "net/http"

// errOrigin refuses a change that the page of another site asks for.
var errOrigin = &refusal{http.StatusForbidden, "cross_origin", "a page of another site may not change anything here"}

// crossOrigin knows such requests by the headers that browsers add, Sec-Fetch-Site and Origin. The page needs no such guard, since it
// sends its login by hand; but browsers add a login that somebody typed into their own dialog, or a client's certificate, to
// requests of any site. What no browser sends passes.
var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin refuses what comes from another site's page and is not a mere look.
func sameOrigin(r *http.Request) error {
	if crossOrigin.Check(r) != nil {
		return errOrigin
	}
	return nil
}

// sameOriginLook is sameOrigin for a look that is more than that to the cluster.
func sameOriginLook(r *http.Request) error {
	as := *r
	as.Method = http.MethodPost
	return sameOrigin(&as)
}
