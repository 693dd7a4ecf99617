package ctl

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/warrenmq/warren/auth"
)

// answerBytesMax bounds what an answer may have.
const answerBytesMax = 256 << 20

// client sends requests to one node.
type client struct {
	base           string // without a slash at the end
	name           string // what messages call the node: its URL, or the path of its control socket
	user, password string // no user: the certificate's
	socket         string // the control socket's path, if it is that
	http           *http.Client
}

// unixScheme begins the address of a control socket.
const unixScheme = "unix://"

// onSocket returns the client of a control socket. The host is for the header only.
func onSocket(path string) *client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &client{base: "http://local", name: path, socket: path, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

func newClient(o *options) (*client, error) {
	if socket, ok := strings.CutPrefix(o.url, unixScheme); ok && socket != "" {
		return onSocket(socket), nil
	}
	u, err := url.Parse(o.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("--url '%s' is no URL like http://127.0.0.1:15672", o.url)
	}
	secure := new(tls.Config)
	if o.ca != "" {
		bundle, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, usage("--ca-file: %v", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, usage("--ca-file: no certificate in %s", o.ca)
		}
	}
	if o.cert != "" || o.key != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, usage("--cert-file and --key-file: %v", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure}
	base := strings.TrimRight(o.url, "/")
	return &client{base: base, name: base, user: o.user, password: o.password, http: &http.Client{Transport: transport}}, nil
}

// path makes a path under /api of parts, which are escaped. None may be empty: open refuses that.
func path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/api")
	for _, p := range parts {
		b.WriteByte('/')
		if p == "." || p == ".." {
			b.WriteString(strings.ReplaceAll(p, ".", "%2E")) // else they mean something in paths
			continue
		}
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// refusal is the node's answer with another status than 2xx.
type refusal struct {
	status        int
	Short, Reason string
}

func (r *refusal) Error() string { return r.Reason }

// isNotFound tells whether the node does not have what the path names.
func isNotFound(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// get fetches a path into to.
func (c *client) get(ctx context.Context, path string, to any) error {
	return c.do(ctx, http.MethodGet, path, nil, to)
}

// put and delete change what a path names; post asks for an action, whose answer goes
// into to unless that is nil.
func (c *client) put(ctx context.Context, path string, body any) error {
	return c.do(ctx, http.MethodPut, path, body, nil)
}

func (c *client) delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, path, nil, nil)
}

// do sends a request. Its errors are an [*Error] for what every verb treats alike, and a
// *refusal of 404, which means something else to each.
func (c *client) do(ctx context.Context, method, path string, body, to any) error {
	resp, raw, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return c.refused(resp, raw)
	}
	if to == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return errorf(ExitSoftware, "the answer of %s is not understood: %v", c.name, err)
	}
	return nil
}

// doWith sends a request without a body, whose answer has none, with a header of its own.
func (c *client) doWith(ctx context.Context, method, path string, header http.Header) error {
	resp, raw, err := c.send(ctx, method, path, nil, header)
	if err == nil && resp.StatusCode/100 != 2 {
		err = c.refused(resp, raw)
	}
	return err
}

// send sends a request and returns the answer, whatever its status. The error is an *Error.
func (c *client) send(ctx context.Context, method, path string, body any, headers ...http.Header) (*http.Response, []byte, error) {
	resp, err := c.open(ctx, method, path, body, headers...)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	raw, err := readAnswer(resp.Body, answerBytesMax)
	if errors.Is(err, errLarge) {
		return nil, nil, errorf(ExitSoftware, "the answer of %s is larger than %d MiB", c.name, answerBytesMax>>20)
	}
	if err != nil {
		return nil, nil, c.lost(ctx, err)
	}
	return resp, raw, nil
}

var errLarge = errors.New("the answer is too large")

// readAnswer reads all, and fails if that is more than limit.
func readAnswer(r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, errLarge
	}
	return raw, err
}

// open is send without reading the answer's body, which the caller closes.
func (c *client) open(ctx context.Context, method, path string, body any, headers ...http.Header) (*http.Response, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		raw, ok := body.(rawJSON)
		if !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				return nil, err
			}
		}
		content = bytes.NewReader(raw)
	}
	if at, _, _ := strings.Cut(path, "?"); strings.Contains(at+"/", "//") {
		return nil, usage("a name is empty") // its path would be that of all, or of something else
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, usage("--url: %v", err)
	}
	for _, header := range headers {
		maps.Copy(req.Header, header)
	}
	if c.user != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	return resp, nil
}

func (c *client) lost(ctx context.Context, err error) error {
	if network, ok := errors.AsType[*url.Error](err); ok {
		err = network.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errorf(ExitTimeout, "operation on node %s timed out", c.name)
	}
	return errorf(ExitUnavailable, "unable to perform an operation on node %s: %v%s", c.name, err, c.unreachable(err))
}

// unreachable is a line of advice for who asks a node that is not there; empty where the error says enough.
func (c *client) unreachable(err error) string {
	refused, missing := errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT)
	switch {
	case c.socket != "" && (refused || missing):
		return "\nNo node runs with the data folder of this control socket; --local looks into the one that WARREN_DATA_DIR names, or else ./data."
	case refused:
		return "\nNo node listens there: start it, or ask another one with --url or WARREN_CTL_URL."
	}
	return ""
}

func (c *client) refused(resp *http.Response, raw []byte) error {
	var body struct {
		Short  string `json:"error"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Reason == "" {
		body.Short, body.Reason = resp.Status, strings.TrimSpace(string(raw))
	}
	if body.Reason == "" {
		body.Reason = resp.Status
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return &refusal{resp.StatusCode, body.Short, body.Reason}
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return errorf(ExitNoPerm, "%s: %s%s", c.who(), body.Reason, c.otherUser(resp.StatusCode, body.Reason))
	case resp.StatusCode == http.StatusTooManyRequests: // failed logins
		return errorf(ExitUnavailable, "%s: %s", c.who(), body.Reason)
	case resp.StatusCode == http.StatusServiceUnavailable && body.Short == "timeout" && resp.Request.Method != http.MethodGet:
		return errorf(ExitTimeout, "node %s has got no answer in time: the change may have been made, or may be yet (%s)", c.name, body.Reason)
	case resp.StatusCode >= http.StatusInternalServerError:
		return errorf(ExitUnavailable, "node %s cannot do it now: %s", c.name, body.Reason)
	}
	return errorf(ExitSoftware, "%s", strings.TrimRight(body.Reason, "\n"))
}

// loginFailed is a node's reason for refusing a login, whatever is wrong with it.
const loginFailed = "Login failed"

// who is the one that a node refuses.
func (c *client) who() string {
	switch {
	case c.socket != "":
		return "control socket"
	case c.user == "":
		return "user of the certificate"
	}
	return fmt.Sprintf("user '%s'", c.user)
}

// otherUser is a line of advice for who has named no user, and is not let in as guest or may not do it by the control socket; empty where the error says enough.
func (c *client) otherUser(status int, reason string) string {
	if c.socket != "" {
		return "\nThe control socket has no permissions in virtual hosts: ask without --local as a user that has them (--user and WARREN_CTL_PASSWORD)."
	}
	if status != http.StatusUnauthorized || reason != loginFailed || c.user != auth.GuestName {
		return ""
	}
	return "\nguest can log in from the node's own machine only (unless the node has --loopback-users none), if there is such a user. Name another one with --user or WARREN_CTL_USER, or use --local on that machine."
}

// noVhost is the error for a virtual host that does not exist.
func noVhost(name string) *Error {
	return errorf(ExitData, "Virtual host '%s' does not exist", name)
}

// gone is found for what is to be deleted: with --idempotently it may be gone already.
func (s *session) gone(err error, other *Error) error {
	if s.opt.idempotently && isNotFound(err) {
		return nil
	}
	return found(err, other)
}

// found turns a 404 into other, and leaves every other error as it is.
func found(err error, other *Error) error {
	if isNotFound(err) {
		return other
	}
	return err
}
