package issue

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Request says what a folder shall hold. Zero durations take their defaults.
type Request struct {
	Dir string // made if it is not there
	// NodeName is the DNS name in the certificate between nodes (the setting cluster-tls-name).
	NodeName string
	// ClientNames are the names and addresses by which clients reach the nodes; "localhost", 127.0.0.1 and ::1 are there anyway.
	ClientNames []string
	// Users get certificates to log in with.
	Users []string
	// Life is how long certificates are valid, default 397 days; AuthorityLife those of authorities, default ten years.
	Life, AuthorityLife time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Defaults of Request. Some clients refuse servers' certificates of more than 398 days.
const (
	LifeDefault          = 397 * 24 * time.Hour
	AuthorityLifeDefault = 3650 * 24 * time.Hour
)

const userBytesMax = 64 // of a common name (RFC 5280, ub-common-name)

// Validate reports the first thing that is wrong.
func (r *Request) Validate() error {
	if r.Dir == "" {
		return fmt.Errorf("a folder is needed")
	}
	if problem := checkName(r.NodeName); problem != "" {
		return fmt.Errorf("the nodes' name %q %s", r.NodeName, problem)
	}
	for _, n := range r.ClientNames {
		if problem := checkName(n); problem != "" {
			return fmt.Errorf("name %q %s", n, problem)
		}
	}
	for _, u := range r.Users {
		if u == "" || len(u) > userBytesMax || u == "." || u == ".." || strings.ContainsAny(u, "/\\\x00") {
			return fmt.Errorf("user %q cannot be the name of a folder or a common name of at most %d bytes", u, userBytesMax)
		}
	}
	if r.Life < 0 || r.AuthorityLife < 0 {
		return fmt.Errorf("a certificate cannot have expired before it is made")
	}
	return nil
}

// Make makes what is asked for and returns the paths of the certificates. Authorities that the folder holds are used again.
func Make(r Request) (made []string, err error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	if r.Now != nil {
		now = r.Now()
	}
	if r.Life == 0 {
		r.Life = LifeDefault
	}
	if r.AuthorityLife == 0 {
		r.AuthorityLife = AuthorityLifeDefault
	}
	keep := filepath.Join(r.Dir, "authorities")
	nodes, err := openAuthority(keep, "nodes", r.AuthorityLife, now)
	if err != nil {
		return nil, err
	}
	clients, err := openAuthority(keep, "clients", r.AuthorityLife, now)
	if err != nil {
		return nil, err
	}
	issue := func(a *authority, dir string, l leaf) {
		l.life = r.Life
		dir = filepath.Join(r.Dir, dir)
		if err == nil {
			err = a.issue(dir, l, now)
			made = append(made, filepath.Join(dir, "tls.crt"))
		}
	}
	// One certificate serves a node as caller and as called.
	issue(nodes, "nodes", leaf{r.NodeName, []string{r.NodeName}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, 0})
	names := append([]string{"localhost", "127.0.0.1", "::1"}, r.ClientNames...)
	slices.Sort(names)
	issue(clients, "clients", leaf{"warren", slices.Compact(names), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, 0})
	for _, u := range r.Users {
		issue(clients, filepath.Join("users", u), leaf{u, nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, 0})
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}
