package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// What changes in the catalog is told, once.
func TestChangesSince(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	m := b.Mark()
	told := func(limit int) (list []string) {
		t.Helper()
		changes, now, _ := b.ChangesSince(m, limit)
		for _, x := range changes {
			list = append(list, fmt.Sprint(x.Action, " ", x.Kind, " ", x.VHost, " ", x.Name))
		}
		m = now
		slices.Sort(list)
		return list
	}
	c.declare("a", nil)
	c.declare("b", nil)
	if got := told(10); !slices.Equal(got, []string{"created queue / a", "created queue / b"}) {
		t.Errorf("%q", got)
	}
	if got := told(10); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if _, err := b.PutPolicy(t.Context(), policySpec(t, "p")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.DeleteQueue(t.Context(), "a", false, false); err != nil {
		t.Fatal(err)
	}
	if got := told(10); !slices.Contains(got, "deleted queue / a") || !slices.Contains(got, "created policy / p") {
		t.Errorf("%q", got)
	}
	if err := b.DeletePolicy(t.Context(), "/", "p", false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutVhost(t.Context(), "v", VhostSettings{}); err != nil {
		t.Fatal(err)
	}
	if got := told(10); !slices.Contains(got, "deleted policy / p") || !slices.Contains(got, "created vhost v v") {
		t.Errorf("%q", got)
	}
	for i := range 5 {
		c.declare(fmt.Sprint("many ", i), nil)
	}
	if changes, _, all := b.ChangesSince(m, 3); len(changes) != 3 || all {
		t.Errorf("%d changes, all %v", len(changes), all)
	}
}

// Of a queue that was deleted and declared anew between two looks, the new one is told last: whoever keeps a list has it then.
func TestChangesOfAQueueDeclaredAnew(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	const queues = 8
	for i := range queues {
		c.declare(fmt.Sprint("q", i), nil)
	}
	m := b.Mark()
	for i := range queues {
		if _, err := c.conn.DeleteQueue(t.Context(), fmt.Sprint("q", i), false, false); err != nil {
			t.Fatal(err)
		}
		c.declare(fmt.Sprint("q", i), nil)
	}
	changes, _, _ := b.ChangesSince(m, 4*queues)
	last := map[string]string{}
	for _, x := range changes {
		last[x.Name] = x.Action
	}
	for i := range queues {
		if name := fmt.Sprint("q", i); last[name] != "created" {
			t.Errorf("%s: %q is told last", name, last[name])
		}
	}
}

// A state of before knows who could enter a virtual host that is deleted now.
func TestMarkKnowsWhoCouldEnter(t *testing.T) {
	b := newBroker(t)
	if _, err := b.PutVhost(t.Context(), "v", VhostSettings{}); err != nil {
		t.Fatal(err)
	}
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "u"}})
	if _, err := b.PutPermission(t.Context(), "v", "u", "", "", ""); err != nil {
		t.Fatal(err)
	}
	m := b.Mark()
	if err := b.DeleteVhost(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	changes, now, _ := b.ChangesSince(m, 10)
	if !slices.Contains(changes, Change{"vhost", "deleted", "v", "v"}) {
		t.Errorf("%v", changes)
	}
	if !m.MayEnter(User{Name: "u"}, "v") || m.MayEnter(User{Name: "other"}, "v") || now.MayEnter(User{Name: "u"}, "v") || (Mark{}).MayEnter(User{Name: "u"}, "v") {
		t.Error("who may enter is mixed up")
	}
}

func policySpec(t *testing.T, name string) policy.Spec {
	t.Helper()
	return policy.Spec{VHost: "/", Name: name, Pattern: "^nothing$", ApplyTo: policy.Queues, Definition: amqp.Table{{Name: "max-length", Value: int64(5)}}}
}
