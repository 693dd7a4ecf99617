package management

import (
	"context"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
	"github.com/warrenmq/warren/shovel"
)

// fakeShovels keeps shovels, and runs those in statuses.
type fakeShovels struct {
	shovels  []*broker.Shovel
	statuses []shovel.Status
	anew     []string
}

func (f *fakeShovels) Shovels() []*broker.Shovel { return f.shovels }

func (f *fakeShovels) PutShovel(ctx context.Context, vhost, name, user, value string) error {
	_, _ = f.DeleteShovel(ctx, vhost, name, 0)
	f.shovels = append(f.shovels, &broker.Shovel{Vhost: vhost, Name: name, User: user, Value: value})
	return nil
}

func (f *fakeShovels) DeleteShovel(_ context.Context, vhost, name string, _ uint64) (there bool, err error) {
	for i, s := range f.shovels {
		if s.Vhost == vhost && s.Name == name {
			f.shovels = append(f.shovels[:i:i], f.shovels[i+1:]...)
			return true, nil
		}
	}
	return false, nil
}

func (f *fakeShovels) Statuses() []shovel.Status { return f.statuses }

func (f *fakeShovels) Restart(vhost, name string) bool {
	for _, s := range f.statuses {
		if s.VHost == vhost && s.Name == name {
			f.anew = append(f.anew, name)
			return true
		}
	}
	return false
}

// Shovels of a queue broker: none.
func (b *fakeBroker) Shovels() []*broker.Shovel { return nil }

// TestShovels: who may make, see, start anew and delete shovels, and what is shown of them by any node.
func TestShovels(t *testing.T) {
	f := newFakeCluster("a", "b")
	vhosts := map[string][]string{"/": {"maker", "manager"}, "v": {}}
	b := &parameterBroker{
		policyBroker: &policyBroker{fakeBroker: fakeBroker{vhosts: vhosts}, sets: map[string]*policy.Set{}},
		limits:       &fakeLimits{&fakeBroker{vhosts: vhosts}, map[string]map[string]int64{}, nil},
	}
	running := &fakeShovels{statuses: []shovel.Status{{
		VHost: "/", Name: "s", State: shovel.Running, Since: time.Unix(1, 0), Source: "amqp:///", Destination: "amqp://h/", Forwarded: 5, Pending: 2, Remaining: -1,
	}}}
	for _, a := range f.apis {
		a.cfg.Broker = b
	}
	f.apis["b"].cfg.Shovels = running
	const good = `{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://u:pw@h/","dest-queue":"d"}`
	const shown = `{"node":"b","timestamp":"1970-01-01 00:00:01","name":"s","vhost":"/","type":"dynamic","state":"running","src_uri":"amqp:///","src_protocol":"amqp091","src_queue":"q",` +
		`"dest_uri":"amqp://h/","dest_protocol":"amqp091","dest_queue":"d","blocked_status":"running","remaining":"unlimited","forwarded":5,"pending":2,"waiting":0}`
	f.expect(t, []request{
		{"maker", "PUT", "parameters/shovel/%2F/s", `{"value":` + good + `}`, 201, ""},
		{"maker", "PUT", "parameters/shovel/%2F/s", `{"value":` + good + `}`, 204, ""},
		{"maker", "PUT", "parameters/shovel/v/s", `{"value":` + good + `}`, 401, `…not_authorised`},
		{"manager", "PUT", "parameters/shovel/%2F/s", `{"value":` + good + `}`, 401, `…not_authorised`},
		{"maker", "PUT", "parameters/shovel/%2F/t", `{"value":{}}`, 400, `…Validation failed\n\nKey \"src-uri\" not found\n`},
		{"maker", "PUT", "parameters/shovel/%2F/t", `{"value":7}`, 400, `…a shovel is a JSON object`},
		{"maker", "PUT", "parameters/shovel/%2F/t", `{"value":{"src-uri":"amqp://admin@","src-queue":"q","dest-uri":"amqp://"}}`, 400, `…only an administrator may have a shovel log in as 'admin'`},
		{"maker", "PUT", "parameters/shovel/%2F/t", `{"value":{"src-uri":"amqp://maker@","src-queue":"q","dest-uri":"amqp://"}}`, 201, ``},
		{"admin", "PUT", "parameters/shovel/v/t", `{"value":{"src-uri":"amqp://maker@","src-queue":"q","dest-uri":"amqp://"}}`, 201, ``},
		{"maker", "GET", "parameters/shovel", "", 200, `…[{"value":` + good + `,"vhost":"/","component":"shovel","name":"s"},{"value":{"src-uri":"amqp://maker@"`},
		{"manager", "GET", "parameters/shovel", "", 401, `…not_authorised`},
		{"manager", "GET", "shovels", "", 401, `…Not monitor user`},
		{"maker", "GET", "shovels/%2F", "", 401, `…Not monitor user`},
		{"maker", "GET", "shovels/vhost/%2F/s", "", 401, `…Not monitor user`},
		{"admin", "GET", "shovels", "", 200, `…[` + shown + `,{"node":"","name":"t","vhost":"/","type":"dynamic","state":"starting"`},
		{"admin", "GET", "shovels/%2F", "", 200, `…[` + shown},
		{"manager", "GET", "shovels/v", "", 401, `…not_authorised`},
		{"admin", "GET", "shovels/v", "", 200, `…[{"node":"","name":"t","vhost":"v"`},
		{"admin", "GET", "shovels/vhost/%2F/s", "", 200, shown},
		{"admin", "GET", "shovels/vhost/%2F/none", "", 404, notThere},
		{"manager", "DELETE", "shovels/vhost/%2F/s/restart", "", 401, `…not_authorised`},
		{"maker", "DELETE", "shovels/vhost/%2F/s/restart", "", 204, ""},
		{"maker", "DELETE", "shovels/vhost/%2F/t/restart", "", 404, notThere},
		{"manager", "DELETE", "shovels/vhost/%2F/s", "", 401, `…not_authorised`},
		{"maker", "DELETE", "shovels/vhost/%2F/s", "", 204, ""},
		{"maker", "DELETE", "shovels/vhost/%2F/s", "", 404, notThere},
		{"maker", "DELETE", "parameters/shovel/%2F/t", "", 204, ""},
		{"maker", "DELETE", "parameters/shovel/%2F/t", "", 404, notThere},
	})
	if len(running.anew) != 1 || running.anew[0] != "s" {
		t.Errorf("started anew: %q", running.anew)
	}
}

type anyRights struct{ auth.Rights }

func (anyRights) Source() string { return "rights of a test" }

// TestWhoMayLend: a shovel has the permissions of a user of the catalog on this cluster: of whoever makes it, or of one that an administrator names. What a
// token permits is not lent.
func TestWhoMayLend(t *testing.T) {
	parse := func(s string) *shovel.URI {
		u, err := shovel.ParseURI(s)
		if err != nil {
			t.Fatal(err)
		}
		return &u
	}
	own, named, mine, far := parse("amqp://"), parse("amqp://other@"), parse("amqp://me@"), parse("amqp://other:pw@h")
	byScopes := broker.User{Rights: anyRights{}}
	for _, tc := range []struct {
		user User
		uri  *shovel.URI
		may  bool
	}{
		{User{Name: "me"}, own, true},
		{User{Name: "me"}, mine, true},
		{User{Name: "me"}, named, false},
		{User{Name: "me"}, far, true},
		{User{Name: "me", Tags: []string{auth.TagAdministrator}}, named, true},
		{User{Name: "me", Login: byScopes}, own, false},
		{User{Name: "me", Login: byScopes}, mine, false},
		{User{Name: "me", Login: byScopes}, far, true},
		{User{Name: "me", Login: byScopes, Tags: []string{auth.TagAdministrator}}, own, false},
		{User{Name: "me", Login: byScopes, Tags: []string{auth.TagAdministrator}}, named, true},
	} {
		if why := mayLend(tc.user, tc.uri); (why == "") != tc.may {
			t.Errorf("%+v, %s: %q", tc.user, tc.uri, why)
		}
	}
}
