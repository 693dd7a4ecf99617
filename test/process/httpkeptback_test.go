package process

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// httpKeptBack: a request that was let in while its user was an administrator changes nothing for one who is deleted, another one of that name, or no
// administrator any more, when the rest of its body comes.
func httpKeptBack(r *usersRig) {
	n := r.nodes[1]
	kept := func(user, method, path, body string) (goOn func() int) {
		r.Helper()
		nc, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", strings.TrimPrefix(n.HTTP(), "http://"))
		r.noError("connect", err)
		r.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		req, err := http.NewRequestWithContext(r.Context(), method, n.HTTP()+path, http.NoBody)
		r.noError("make a request", err)
		req.SetBasicAuth(user, passwordFirst)
		_, err = fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: node\r\nAuthorization: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			method, path, req.Header.Get("Authorization"), len(body))
		r.noError("ask", err)
		answers := bufio.NewReader(nc)
		resp, err := http.ReadResponse(answers, req) // who is asked for the body has been let in
		r.noError("wait for the word to go on", err)
		if resp.Body.Close(); resp.StatusCode != http.StatusContinue {
			r.Fatalf("the request of %s was answered with %d", user, resp.StatusCode)
		}
		return func() int {
			r.Helper()
			_, err := fmt.Fprint(nc, body)
			r.noError("send the body", err)
			resp, err := http.ReadResponse(answers, req)
			r.noError("read the answer", err)
			_ = resp.Body.Close()
			return resp.StatusCode
		}
	}
	admin := func(label string) string {
		name := r.user(label, "", "", "")
		mustCtl(r.T, r.nodes[0], "set_user_tags", name, "administrator")
		return name
	}
	mine := r.name("mine")
	put := func(user string) func() int {
		return kept(user, http.MethodPut, "/api/users/"+mine, `{"password": "x", "tags": "administrator"}`)
	}
	deleted, other, demoted, still := admin("deleted"), admin("other"), admin("demoted"), admin("still")
	asOther, asDemoted, asDeleted, asStill := put(other), put(demoted), put(deleted), put(still)
	imports := kept(deleted, http.MethodPost, "/api/definitions", fmt.Sprintf(`{"users": [{"name": %q, "password": "x", "tags": ["administrator"]}]}`, mine))
	mustCtl(r.T, r.nodes[0], "delete_user", deleted)
	mustCtl(r.T, r.nodes[0], "delete_user", other)
	mustCtl(r.T, r.nodes[0], "add_user", other, passwordFirst) // somebody else
	mustCtl(r.T, r.nodes[0], "set_user_tags", other, "administrator")
	mustCtl(r.T, r.nodes[0], "set_user_tags", demoted, "management")
	for name, goOn := range map[string]func() int{"deleted": asDeleted, "another": asOther, "demoted": asDemoted, "deleted, with definitions": imports} {
		if status := goOn(); status != http.StatusUnauthorized {
			r.Errorf("%s: %d", name, status)
		}
	}
	if users := mustCtl(r.T, r.nodes[2], "list_users"); strings.Contains(users, mine) {
		r.Errorf("a user was made all the same:\n%s", users)
	}
	if status := asStill(); status != http.StatusCreated {
		r.Errorf("an administrator's: %d", status)
	}
	mustCtl(r.T, r.nodes[0], "delete_user", mine)
}
