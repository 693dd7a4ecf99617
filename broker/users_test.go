package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// G07 and G08: the connections of a deleted user, and those of a deleted vhost, end; others and
// those that only lose their permission or get a new password stay.
func TestDeletedUsersAndVhosts(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	made := func(_ bool, err error) error { return err }
	ends := make(chan string, 10)
	enter := func(user, vhost string) {
		t.Helper()
		var once sync.Once // as a gateway does it, which takes a moment to end
		_, err := b.Open(ctx, User{Name: user}, vhost, ConnInfo{Kick: func(why *Error) {
			once.Do(func() { ends <- fmt.Sprintf("%s@%s: %v", user, vhost, why) })
		}})
		must(err)
	}
	ended := func(want string) {
		t.Helper()
		select {
		case got := <-ends:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing ended; want %q", want)
		}
	}
	for _, v := range []string{"v", "w"} {
		must(made(b.PutVhost(ctx, v, VhostSettings{})))
		for _, u := range []string{"a", "b"} {
			must(made(b.PutUser(ctx, auth.User{Name: u})), made(b.PutPermission(ctx, v, u, "", "", "")))
		}
	}
	enter("a", "v")
	enter("b", "w")
	must(b.SetPassword(ctx, "b", auth.HashPassword("x")), b.SetTags(ctx, "b", []string{"t"}), b.DeletePermission(ctx, "w", "b"))
	must(b.DeleteUser(ctx, "a"))
	ended("a@v: user 'a' is deleted")
	must(b.DeleteVhost(ctx, "w"))
	ended("b@w: vhost 'w' is deleted")
	_, err := b.Open(ctx, User{Name: "a"}, "v", ConnInfo{})
	wantKind(t, err, NotAllowed, "access to vhost 'v' refused for user 'a'")
	_, err = b.Open(ctx, User{Name: "b"}, "w", ConnInfo{})
	wantKind(t, err, NotAllowed, "vhost w not found")
	select {
	case got := <-ends:
		t.Errorf("%s", got)
	default:
	}
}

// TestUserIsAddedAgain: whoever is deleted and added again is another user, also to a node that hears of both at once.
func TestUserIsAddedAgain(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	put := func() {
		t.Helper()
		_, err := b.PutUser(ctx, auth.User{Name: "a"})
		_, err2 := b.PutPermission(ctx, "/", "a", "", "", "")
		must(err, err2)
	}
	put()
	c, err := b.Open(ctx, User{Name: "a"}, "/", ConnInfo{})
	must(err)
	put()
	must(b.SetPassword(ctx, "a", auth.HashPassword("x")), b.SetTags(ctx, "a", []string{"t"}))
	if why := c.stranger(b.cat.View()); why != nil {
		t.Errorf("changed: %v", why)
	}
	must(b.DeleteUser(ctx, "a"))
	put()
	if why := c.stranger(b.cat.View()); why == nil || why.Text != "user 'a' is deleted" {
		t.Errorf("added again: %v", why)
	}
}

func TestUserAdministration(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	yes := func(created bool, err error) {
		t.Helper()
		if !created || err != nil {
			t.Errorf("%t %v", created, err)
		}
	}
	not := func(k Kind, text string, errs ...error) {
		t.Helper()
		for _, err := range errs {
			wantKind(t, err, k, text)
		}
	}
	fails := func(_ bool, err error) error { return err }
	yes(b.PutUser(ctx, auth.User{Name: "u", Tags: []string{"t"}}))
	if err := b.AddUser(ctx, auth.User{Name: "added"}); err != nil {
		t.Error(err)
	}
	if u, err := b.FindUser(ctx, "u"); err != nil || u.Name != "u" {
		t.Errorf("%v %v", u, err)
	}
	if list := b.Users(); len(list) != 3 {
		t.Errorf("%d users", len(list))
	}
	_, err := b.FindUser(ctx, "gone")
	not(NotFound, "user 'gone' not found", err, b.DeleteUser(ctx, "gone"), b.SetPassword(ctx, "gone", ""), b.SetTags(ctx, "gone", nil),
		fails(b.PutPermission(ctx, "/", "gone", "", "", "")), fails(b.PutTopicPermission(ctx, "/", "gone", "x", "", "")))
	not(NotFound, "vhost gone not found", b.DeleteVhost(ctx, "gone"),
		fails(b.PutPermission(ctx, "gone", "u", "", "", "")), fails(b.PutTopicPermission(ctx, "gone", "u", "x", "", "")))
	not(PreconditionFailed, "user 'u' already exists", b.AddUser(ctx, auth.User{Name: "u"}))
	not(NotFound, "user 'u' has no permissions in vhost '/'", b.DeletePermission(ctx, "/", "u"))
	not(NotFound, "user 'u' has no topic permissions in vhost '/'", b.DeleteTopicPermission(ctx, "/", "u", ""))

	yes(b.PutPermission(ctx, "/", "u", "c", "w", "r"))
	yes(b.PutTopicPermission(ctx, "/", "u", "x", "w", "r"))
	if p := b.Permissions("/", "u"); len(p) != 1 || len(b.Permissions("", "")) != 2 || p[0].Pattern(auth.Write) != "w" {
		t.Errorf("%v", p)
	}
	if p := b.TopicPermissions("", "u"); len(p) != 1 || len(b.TopicPermissions("v", "")) != 0 || p[0].Exchange != "x" {
		t.Errorf("%v", p)
	}
	if err := errors.Join(b.DeleteTopicPermission(ctx, "/", "u", "x"), b.DeletePermission(ctx, "/", "u")); err != nil {
		t.Error(err)
	}
}

func TestVhostAdministration(t *testing.T) {
	b := newBroker(t)
	ctx := context.Background()
	put := func(s VhostSettings) {
		t.Helper()
		if _, err := b.PutVhost(ctx, "v", s); err != nil {
			t.Fatal(err)
		}
	}
	quorum, tags, text, yes, no := typeQuorum, []string{"t"}, "d", true, false
	put(VhostSettings{Description: &text, Tags: &tags})
	put(VhostSettings{DefaultQueueType: &quorum, Protected: &yes})
	if got := fmt.Sprint(b.VhostInfos()); got != "[{/ Default virtual host [] classic false} {v d [t] quorum true}]" {
		t.Error(got)
	}
	stream := "stream"
	_, err := b.PutVhost(ctx, "v", VhostSettings{DefaultQueueType: &stream})
	wantKind(t, err, PreconditionFailed, "default queue type 'stream' is not supported: want classic or quorum")
	wantKind(t, b.DeleteVhost(ctx, "v"), PreconditionFailed, "vhost 'v' is protected from deletion")
	put(VhostSettings{Protected: &no})
	if err := b.DeleteVhost(ctx, "v"); err != nil {
		t.Error(err)
	}
}

// TestVhostConditions: a vhost that is deleted while its settings are changed stays deleted, and one that somebody else makes keeps its settings.
func TestVhostConditions(t *testing.T) {
	var faster *fasterCatalog
	b := newBrokerBehind(t, func(c Catalog) Catalog {
		faster = &fasterCatalog{Catalog: c}
		return faster
	})
	ctx := t.Context()
	mine, yes := "mine", true
	put := func(s VhostSettings) error {
		t.Helper()
		_, err := b.PutVhost(ctx, "v", s)
		return err
	}
	notThere := "vhost v not found"
	wantKind(t, put(VhostSettings{Protected: &yes, Existing: true}), NotFound, notThere)
	if err := put(VhostSettings{New: true}); err != nil {
		t.Fatal(err)
	}
	faster.by(&catalog.DeleteVhost{Name: "v"})
	wantKind(t, put(VhostSettings{Protected: &yes, Existing: true}), NotFound, notThere)
	faster.by(&catalog.PutVhost{Vhost: catalog.Vhost{Name: "v", Description: "theirs"}})
	if err := put(VhostSettings{Description: &mine, New: true}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.VhostInfos()); got != "[{/ Default virtual host [] classic false} {v theirs [] classic false}]" {
		t.Error(got)
	}
	if err := put(VhostSettings{Description: &mine, Existing: true}); err != nil || b.VhostInfos()[1].Description != mine {
		t.Errorf("%v, %v", b.VhostInfos(), err)
	}
}

// TestUserIsAddedAgainAfterTheLogin: who logged in as a user that was deleted since does not become the one that has got the name.
func TestUserIsAddedAgainAfterTheLogin(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	add := func(password string) {
		t.Helper()
		_, err := b.PutUser(ctx, auth.User{Name: "a", PasswordHash: auth.HashPassword(password)})
		if _, grant := b.PutPermission(ctx, "/", "a", ".*", ".*", ".*"); err != nil || grant != nil {
			t.Fatal(err, grant)
		}
	}
	add("first")
	u, err := b.Login(ctx, auth.MechanismPlain, []byte("\x00a\x00first"), Caller{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(ctx, u, "/", ConnInfo{}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteUser(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	add("second")
	_, err = b.Open(ctx, u, "/", ConnInfo{})
	wantKind(t, err, NotAllowed, "user 'a' is deleted")
}

// TestRenew: who has logged in has the tags of now, unless deleted, or another one has the name.
func TestRenew(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	add := func(tags ...string) {
		t.Helper()
		if err := b.AddUser(ctx, auth.User{Name: "u", PasswordHash: auth.HashPassword("p"), Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	add("administrator")
	u, err := b.Login(ctx, "PLAIN", []byte("\x00u\x00p"), Caller{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetTags(ctx, "u", []string{"management"}); err != nil {
		t.Fatal(err)
	}
	if now, err := b.Renew(u); err != nil || !slices.Equal(now.Tags, []string{"management"}) {
		t.Errorf("%v, %v", now, err)
	}
	for _, again := range []bool{false, true} {
		if again {
			add("administrator")
		} else if err := b.DeleteUser(ctx, "u"); err != nil {
			t.Fatal(err)
		}
		_, err := b.Renew(u)
		wantKind(t, err, AccessRefused, "user 'u' is deleted")
	}
}

// away is a catalog that fails with an error from some moment on, as that of a node which was away while a change was on its way, and which nobody tells of its fate.
type away struct {
	Catalog

	is atomic.Pointer[error]
}

func (a *away) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if err := a.is.Load(); err != nil {
		return catalog.Result{}, *err
	}
	return a.Catalog.Propose(ctx, cmd)
}

// TestChangesThatAreNotMade: a change that may have been made, and one for which a node of the cluster is too old, are told from faults of the program.
func TestChangesThatAreNotMade(t *testing.T) {
	var a *away
	b := newBrokerBehind(t, func(c Catalog) Catalog {
		a = &away{Catalog: c}
		return a
	})
	for err, want := range map[error]Kind{
		fmt.Errorf("%w: the node was away for too many others", catalog.ErrUnknownOutcome): TimedOut, catalog.ErrLevel: PreconditionFailed,
	} {
		a.is.Store(&err)
		var e *Error
		if err := b.DeleteUser(t.Context(), "guest"); !errors.As(err, &e) || e.Kind != want || e.Unasked {
			t.Errorf("%#v", err)
		}
	}
}
