package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// TestWhatIsThereStays: queues and exchanges are not made anew, users and policies take what the document says, and
// nobody takes anything from the default user.
func TestWhatIsThereStays(t *testing.T) {
	m := newModel(t)
	m.load(t, []byte(`{"users":[{"name":"u","password":"old","tags":["monitoring"]}],
		"queues":[{"name":"q","vhost":"/","arguments":{"x-max-length":1}}], "exchanges":[{"name":"x","vhost":"/","type":"fanout"}],
		"policies":[{"name":"p","vhost":"/","pattern":"a","definition":{"max-length":1}}]}`), Options{DefaultUser: "admin"})
	doc := []byte(`{"users":[{"name":"u","password_hash":"","tags":["mine"]},{"name":"admin","password":"stolen","tags":[],"limits":{"max-connections":0}}],
		"permissions":[{"user":"admin","vhost":"/","configure":"","write":"","read":""}],
		"topic_permissions":[{"user":"admin","vhost":"/","exchange":"amq.topic","write":"","read":""}],
		"queues":[{"name":"q","vhost":"/","durable":false,"arguments":{"x-max-length":2}}], "exchanges":[{"name":"x","vhost":"/","type":"topic"}],
		"policies":[{"name":"p","vhost":"/","pattern":"b","definition":{"max-length":2}}]}`)
	d, err := Parse(doc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(d, m.view(), Options{DefaultUser: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	preview := p.Preview()
	text, _ := json.Marshal(preview.Changes)
	const want = `[{"kind":"user","name":"u","action":"update","differences":[{"field":"tags","from":["monitoring"],"to":["mine"]},{"field":"password_hash","from":"(hidden)","to":"(hidden)"}]},` +
		`{"kind":"policy","vhost":"/","name":"p","action":"update","differences":[{"field":"definition","from":"{\"max-length\":1}","to":"{\"max-length\":2}"},{"field":"pattern","from":"a","to":"b"}]}]`
	if string(text) != want || !preview.DryRun {
		t.Errorf("preview:\n%s", text)
	}
	skipped, _ := json.Marshal(preview.Skipped)
	for _, part := range []string{
		`{"kind":"user","name":"admin","reason":"the default user stays as it is"}`, `{"kind":"permission","vhost":"/","name":"admin","reason":"the default user stays as it is"}`,
		`"name":"admin on amq.topic","reason":"the default user stays as it is"`, `"name":"q","reason":"is there already, and stays as it is: arguments is {\"x-max-length\":1}, not {\"x-max-length\":2}, durable is true, not false"`,
		`"name":"x","reason":"is there already, and stays as it is: type is fanout, not topic"`,
	} {
		if !strings.Contains(string(skipped), part) {
			t.Errorf("skipped: %s\nwant %s", skipped, part)
		}
	}
	m.load(t, doc, Options{DefaultUser: "admin"})
	u := m.view().User("admin")
	if u.Login("of the secret", true) != nil || !u.HasTag(auth.TagAdministrator) || u.Limits.Connections.Set || m.view().Permission("/", "admin").Pattern(auth.Read) != ".*" {
		t.Errorf("the default user is now %+v", u)
	}
	if m.view().TopicPermission("/", "admin", "amq.topic") != nil {
		t.Error("the default user may not publish any more")
	}
	// Without the option the document counts, as for any other user.
	m.load(t, doc, Options{})
	if m.view().User("admin").Login("stolen", true) != nil {
		t.Error("the document's password does not count")
	}
}

// TestMadeMeanwhileStays: what somebody else has made between the plan and its execution stays, and the report says so as if it had been there before.
func TestMadeMeanwhileStays(t *testing.T) {
	m := newModel(t)
	d, err := Parse([]byte(`{"queues":[{"name":"q","vhost":"/","arguments":{"x-max-length":2}},{"name":"same","vhost":"/"},{"name":"new","vhost":"/"}],
		"exchanges":[{"name":"x","vhost":"/","type":"topic"},{"name":"same","vhost":"/","type":"topic"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(d, m.view(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.load(t, []byte(`{"queues":[{"name":"q","vhost":"/","arguments":{"x-max-length":1}},{"name":"same","vhost":"/"}],
		"exchanges":[{"name":"x","vhost":"/","type":"fanout"},{"name":"same","vhost":"/","type":"topic"}]}`), Options{})
	r, err := p.Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	skipped, _ := json.Marshal(r.Skipped)
	const want = `[{"kind":"exchange","vhost":"/","name":"x","reason":"is there already, and stays as it is: type is fanout, not topic"},` +
		`{"kind":"queue","vhost":"/","name":"q","reason":"is there already, and stays as it is: arguments is {\"x-max-length\":1}, not {\"x-max-length\":2}"}]`
	if string(skipped) != want {
		t.Errorf("skipped: %s\nwant %s", skipped, want)
	}
	if queues, exchanges := r.Counts[KindQueue], r.Counts[KindExchange]; queues != (Count{Created: 1, Unchanged: 1, Skipped: 1}) || exchanges != (Count{Unchanged: 1, Skipped: 1}) {
		t.Errorf("queues: %+v, exchanges: %+v", queues, exchanges)
	}
	if len(r.Changes) != 1 || r.Changes[0].Name != "new" {
		t.Errorf("changes: %+v", r.Changes)
	}
}

// TestDeletedMeanwhileIsLeftOut: bindings of queues and exchanges that somebody deletes while they are imported are left out, as if there had been none, and the rest is imported.
func TestDeletedMeanwhileIsLeftOut(t *testing.T) {
	m := newModel(t)
	var bindings []string
	for _, to := range []string{"x -> a", "x -> b", "y -> b", "x -> c"} {
		source, queue, _ := strings.Cut(to, " -> ")
		bindings = append(bindings, `{"vhost":"/","source":"`+source+`","destination":"`+queue+`","destination_type":"queue","routing_key":"k"}`)
	}
	d, err := Parse([]byte(`{"queues":[{"name":"a","vhost":"/"},{"name":"b","vhost":"/"},{"name":"c","vhost":"/"}],
		"exchanges":[{"name":"x","vhost":"/","type":"direct"},{"name":"y","vhost":"/","type":"direct"}],"bindings":[` + strings.Join(bindings, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(d, m.view(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	m.fail = func(cmd catalog.Command) error {
		if _, ok := cmd.(*catalog.Bind); ok {
			once.Do(func() {
				for _, gone := range []catalog.Command{&catalog.DeleteQueue{Vhost: "/", Name: "a"}, &catalog.DeleteExchange{Vhost: "/", Name: "y"}} {
					m.index++
					if _, err := m.copy.Apply(m.index, gone); err != nil {
						t.Error(err)
					}
				}
			})
		}
		return nil
	}
	r, err := p.Run(t.Context(), m)
	if err != nil {
		t.Fatal(err, r.Failed)
	}
	skipped, _ := json.Marshal(r.Skipped)
	const want = `[{"kind":"binding","vhost":"/","name":"x -> queue a (k)","reason":"no queue 'a' in vhost '/'"},` +
		`{"kind":"binding","vhost":"/","name":"y -> queue b (k)","reason":"no exchange 'y' in vhost '/'"}]`
	skipped = bytes.ReplaceAll(skipped, []byte(`\u003e`), []byte(">"))
	if got := r.Counts[KindBinding]; string(skipped) != want || got != (Count{Created: 2, Skipped: 2}) {
		t.Errorf("%+v, skipped: %s\nwant %s", got, skipped, want)
	}
}

// Fresh implements Node.
func (m *model) Fresh(context.Context) (*catalog.View, error) { return m.view(), nil }

// TestDeletedMeanwhileIsMadeAnew: users and virtual hosts that somebody deletes while they are imported are made, with what belongs to them, as if they had not been there; where
// that goes on all the time the import ends with what is missing.
func TestDeletedMeanwhileIsMadeAnew(t *testing.T) {
	const doc = `{"vhosts":[{"name":"v","description":"new"}],"users":[{"name":"u","tags":["new"]},{"name":"x","tags":[]}],
		"permissions":[{"user":"u","vhost":"v","configure":"a","write":"b","read":"c"}],
		"policies":[{"vhost":"v","name":"p","pattern":"q","definition":{"max-length":5}}]}`
	for always, want := range map[bool]string{
		false: "5 created, 1 updated, 0 unchanged, 0 skipped, 0 failed, 0 not tried",
		true:  "",
	} {
		m := newModel(t)
		m.load(t, []byte(`{"vhosts":[{"name":"v","description":"old"}],"users":[{"name":"u","tags":["old"]}]}`), Options{})
		deleted := map[string]bool{}
		m.fail = func(cmd catalog.Command) error {
			var gone []catalog.Command
			switch c := cmd.(type) {
			case *catalog.ChangeUser:
				gone = append(gone, &catalog.DeleteUser{Name: c.User.Name})
			case *catalog.PutPermission:
				gone = append(gone, &catalog.DeleteVhost{Name: c.Vhost})
			}
			for _, g := range gone {
				if name := fmt.Sprintf("%T", g); always || !deleted[name] {
					deleted[name] = true
					m.index++
					if _, err := m.copy.Apply(m.index, g); err != nil {
						t.Error(err)
					}
				}
			}
			return nil
		}
		s := NewService(m, func() Source { return Source{} }, "admin", auth.Hashing{}, slog.New(slog.DiscardHandler))
		r, policies, err := s.Import(t.Context(), []byte(doc), Request{})
		if always {
			if err == nil || !Refused(err) || len(r.Failed) != 1 {
				t.Errorf("%v, %s", err, r.Summary())
			}
			continue
		}
		if err != nil || r.Summary() != want || !slices.Equal(policies, []string{"v"}) || m.view().Permission("v", "u") == nil || !slices.Equal(m.view().User("u").Tags, []string{"new"}) {
			t.Errorf("%v, %s, policies in %q: %+v", err, r.Summary(), policies, r.Failed)
		}
	}
}
