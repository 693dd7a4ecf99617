package definitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
)

const node catalog.NodeID = "n1/uuid"

// model is a cluster that is the catalog's machine alone.
type model struct {
	mu    sync.Mutex
	copy  *catalog.Copy
	index uint64
	// fail, if set, tells of each command whether it fails.
	fail func(catalog.Command) error
}

func newModel(t interface{ Fatal(...any) }) *model {
	m := &model{copy: catalog.NewCopy()}
	for _, cmd := range []catalog.Command{
		&catalog.Found{ClusterID: "c", Admin: auth.User{Name: "admin", PasswordHash: auth.HashPassword("of the secret"), Tags: []string{auth.TagAdministrator}}},
		&catalog.RegisterNode{ID: node},
	} {
		if _, err := m.Define(context.Background(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *model) view() *catalog.View { return m.copy.View() }

func (m *model) Define(_ context.Context, cmd catalog.Command) (catalog.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail(cmd); err != nil {
			return catalog.Result{}, err
		}
	}
	if err := catalog.Check(cmd); err != nil {
		return catalog.Result{}, err
	}
	m.index++
	res, err := m.copy.Apply(m.index, cmd)
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.NotFound {
		err = broker.Errorf(broker.NotFound, "%s", e.Text)
	}
	return res, err
}

func (m *model) DefineQueue(ctx context.Context, vhost string, d broker.QueueDeclare) (bool, *catalog.Queue, error) {
	kind := catalog.Replicated
	if !d.Durable {
		kind = catalog.Transient
	}
	res, err := m.Define(ctx, &catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: vhost, Name: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: d.Arguments, Kind: kind, Members: []catalog.NodeID{node}, Preferred: node,
	}, NodeIncarnation: m.view().Node(node).Incarnation})
	if res.Changed {
		return true, nil, err
	}
	return false, res.Queue, err
}

func (m *model) DefineExchange(ctx context.Context, vhost string, d broker.ExchangeDeclare) (bool, *catalog.Exchange, error) {
	typ, err := broker.CheckExchange(vhost, d)
	if err != nil {
		return false, nil, err
	}
	cmd := &catalog.DeclareExchange{Exchange: catalog.Exchange{
		Vhost: vhost, Name: d.Name, Type: typ, Durable: d.Durable, AutoDelete: d.AutoDelete, Internal: d.Internal, Arguments: d.Arguments,
	}}
	if typ == exchange.Delayed {
		cmd.Members, cmd.Preferred = []catalog.NodeID{node}, node
	}
	res, err := m.Define(ctx, cmd)
	if res.Changed {
		return true, nil, err
	}
	return false, m.view().Exchange(vhost, d.Name), err
}

func (*model) Everywhere(context.Context) {}

// load imports a document and wants it to succeed.
func (m *model) load(t *testing.T, raw []byte, opt Options) Report {
	t.Helper()
	d, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(d, m.view(), opt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Run(t.Context(), m)
	if err != nil {
		t.Fatal(err, r.Failed)
	}
	return r
}

// text is the export of everything, or of a virtual host.
func (m *model) text(t interface{ Fatal(...any) }, vhost string) string {
	var b bytes.Buffer
	if err := Export(m.view(), vhost, Source{"Warren", "0.1.0", "c"}).Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestRabbitMQ310 loads what RabbitMQ 3.10 wrote (testdata/rabbitmq.sh): its management API, and rabbitmqctl, which writes limits and the definitions of
// operator policies as lists of pairs.
func TestRabbitMQ310(t *testing.T) {
	for _, name := range []string{"rabbitmq-3.10.json", "rabbitmqctl-3.10.json"} {
		t.Run(name, func(t *testing.T) { loadRabbitMQ310(t, name) })
	}
}

func loadRabbitMQ310(t *testing.T, name string) {
	m := newModel(t)
	r := m.load(t, file(t, name), Options{DefaultUser: "admin"})
	v := m.view()
	for user, password := range map[string]string{"sha256": "pass of sha256", "sha512": "pass of sha512", "md5": "pass of md5", "guest": "guest", "admin": "of the secret"} {
		if err := v.User(user).Login(password, true); err != nil {
			t.Error(err)
		}
	}
	if v.User("nopass").Login("x", true) == nil || v.User("nopass").Login("", true) == nil {
		t.Error("a user without a password is let in")
	}
	if u := v.User("sha256"); !slices.Equal(u.Tags, []string{"management", "policymaker"}) || u.Limits.Connections.Value != 10 || u.Limits.Channels.Value != 50 {
		t.Errorf("user %+v", u)
	}
	if h := v.Vhost("a/b"); h == nil || h.Limits.Connections.Value != 100 || h.Limits.Queues.Value != 50 {
		t.Errorf("vhost %+v", h)
	}
	if p := v.Permission("/", "sha256"); p == nil || p.Pattern(auth.Configure) != `^app\.` {
		t.Errorf("permission %+v", p)
	}
	if p := v.TopicPermission("/", "sha256", "app.events"); p == nil || p.Pattern(auth.Write) != `^app\.` {
		t.Errorf("topic permission %+v", p)
	}
	if p := v.Policies("/").Find(true, "bounds"); p == nil || p.Priority != 1 || len(p.Definition) != 2 {
		t.Errorf("operator policy %+v", p)
	}
	// Mirroring goes, the rest of the policy stays.
	if p := v.Policies("/").Find(false, "mirrored"); p == nil || len(p.Definition) != 1 || p.Definition[0].Name != "max-length" {
		t.Errorf("policy %+v", p)
	}
	q := v.Queue("/", "app.quorum")
	if limit, _ := q.Arguments.Get("x-delivery-limit"); q == nil || broker.TypeOf(q.Arguments) != "quorum" || limit != int64(5) {
		t.Errorf("queue %+v", q)
	}
	if x := v.Exchange("/", "app.spread"); x == nil || x.Type != exchange.ConsistentHash {
		t.Errorf("exchange %+v", x)
	}
	want := []string{
		"parameter 'federation-upstream/other' in vhost '/'",
		"key 'ha-mode' in vhost '/'", "key 'ha-params' in vhost '/'", "key 'ha-sync-mode' in vhost '/'",
	}
	bindings := 6
	if name == "rabbitmq-3.10.json" {
		want = slices.Concat([]string{"global parameter 'mqtt_port_to_vhost_mapping'", "global parameter 'internal_cluster_id'"}, want)
	} else { // rabbitmqctl leaves out internal exchanges, and the cluster's id
		want = slices.Concat([]string{"global parameter 'mqtt_port_to_vhost_mapping'"}, want, []string{"binding 'app.inside -> queue app.classic (in)' in vhost '/'"})
		bindings--
	}
	if n := len(slices.Collect(v.Bindings("/"))) + len(slices.Collect(v.Bindings("a/b"))); n != bindings {
		t.Errorf("%d bindings", n)
	}
	var left []string
	for _, s := range r.Skipped {
		left = append(left, s.String())
	}
	if !slices.Equal(left, want) {
		t.Errorf("left out: %q", left)
	}
	again := m.load(t, file(t, name), Options{DefaultUser: "admin"})
	if len(again.Changes) > 0 {
		t.Errorf("a second time changes %+v", again.Changes)
	}
}

// TestRabbitMQ43 loads what RabbitMQ 4.3 wrote.
func TestRabbitMQ43(t *testing.T) {
	m := newModel(t)
	r := m.load(t, file(t, "rabbitmq-4.3.json"), Options{DefaultUser: "admin"})
	v := m.view()
	for user, password := range map[string]string{"sha256": "pass of sha256", "sha512": "pass of sha512", "md5": "pass of md5"} {
		if err := v.User(user).Login(password, true); err != nil {
			t.Error(err)
		}
	}
	if h := v.Vhost("a/b"); h == nil || h.Description != "a virtual host" || !slices.Equal(h.Tags, []string{"prod", "eu"}) || h.Limits.Queues.Value != 50 {
		t.Errorf("vhost %+v", h)
	}
	if n := len(slices.Collect(v.Queues("/"))); n != 4 || broker.TypeOf(v.Queue("/", "app.quorum").Arguments) != "quorum" {
		t.Errorf("%d queues", n)
	}
	var left []string
	for _, s := range r.Skipped {
		left = append(left, s.String())
	}
	// Bindings of internal exchanges are in it, and these are not.
	want := []string{
		"global parameter 'mqtt_port_to_vhost_mapping'", "global parameter 'cluster_tags'",
		"parameter 'federation-upstream/other' in vhost '/'", "exchange 'amq.rabbitmq.log' in vhost '/'",
		"binding 'app.inside -> queue app.classic (in)' in vhost '/'",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left out: %q", left)
	}
	if again := m.load(t, file(t, "rabbitmq-4.3.json"), Options{DefaultUser: "admin"}); len(again.Changes) > 0 {
		t.Errorf("a second time changes %+v", again.Changes)
	}
}

// TestOtherForms has what people and other versions write.
func TestOtherForms(t *testing.T) {
	const doc = `{
	"rabbit_version": "4.1.0", "something_new": [1],
	"users": [{"name": "plain", "password": "p", "tags": "administrator, mine"}, {"name": "bare"}],
	"vhosts": [{"name": "v", "metadata": {"description": "d", "tags": ["t"], "default_queue_type": "quorum"}, "limits": []},
	           {"name": "w", "description": "e", "tags": [], "default_queue_type": "undefined", "limits": {"max-queues": 1}}],
	"topic_permissions": [{"user": "plain", "vhost": "/", "exchange": "", "write": "a", "read": "b"}],
	"queues": [{"name": "typed", "vhost": "v", "type": "classic", "durable": true, "auto_delete": false, "arguments": {}},
	           {"name": "default", "vhost": "v", "arguments": []},
	           {"name": "quorum", "vhost": "/", "type": "quorum", "durable": true},
	           {"name": "amq.gen-x", "vhost": "/", "durable": true}],
	"exchanges": [{"name": "amq.topic", "vhost": "/", "type": "topic"}, {"name": "", "vhost": "/", "type": "direct"}],
	"bindings": [{"source": "amq.topic", "vhost": "v", "destination": "typed", "destination_type": "queue", "routing_key": "#", "arguments": {}},
	             {"source": "", "vhost": "v", "destination": "typed", "destination_type": "queue", "routing_key": "typed"},
	             {"source": "amq.topic", "vhost": "/", "destination": "amq.gen-x", "destination_type": "queue", "routing_key": "#"},
	             {"source": "none", "vhost": "/", "destination": "quorum", "destination_type": "queue", "routing_key": "#"}]}`
	m := newModel(t)
	r := m.load(t, append([]byte("\xef\xbb\xbf"), doc...), Options{})
	v := m.view()
	if u := v.User("plain"); u.Login("p", true) != nil || !slices.Equal(u.Tags, []string{"administrator", "mine"}) {
		t.Errorf("user %+v", u)
	}
	costly := newModel(t)
	costly.load(t, []byte(`{"users":[{"name":"plain","password":"p"}]}`), Options{Hashing: auth.Hashing{BcryptCost: 4}})
	if u := costly.view().User("plain"); u.PasswordHash.BcryptCost() != 4 || u.Login("p", true) != nil {
		t.Errorf("hashed as %s", u.PasswordHash.Algorithm())
	}
	if u := v.User("bare"); u == nil || u.PasswordHash != "" {
		t.Errorf("user %+v", u)
	}
	if h := v.Vhost("v"); h.Description != "d" || !slices.Equal(h.Tags, []string{"t"}) || h.DefaultQueueType != "quorum" {
		t.Errorf("vhost %+v", h)
	}
	if h := v.Vhost("w"); h.Description != "e" || h.DefaultQueueType != "" || h.Limits.Queues.Value != 1 {
		t.Errorf("vhost %+v", h)
	}
	for name, typ := range map[string]string{"v/typed": "classic", "v/default": "quorum", "//quorum": "quorum"} {
		q := v.Queue(name[:1], name[2:])
		if q == nil || broker.TypeOf(q.Arguments) != typ || !q.Durable {
			t.Errorf("queue %s: %+v", name, q)
		}
	}
	if n := len(slices.Collect(v.Bindings("v"))); n != 1 {
		t.Errorf("%d bindings", n)
	}
	if len(r.Skipped) != 7 {
		t.Errorf("left out: %+v", r.Skipped)
	}
	if again := m.load(t, []byte(doc), Options{}); len(again.Changes) > 0 {
		t.Errorf("a second time changes %+v", again.Changes)
	}
}

// TestRefused has documents of which nothing is imported, and why.
func TestRefused(t *testing.T) {
	queue := func(rest string) string { return `{"queues":[{"name":"q","vhost":"/",` + rest + `}]}` }
	for name, c := range map[string]struct {
		doc, want   string
		unsupported bool
	}{
		"no JSON":                 {`{`, "definitions are not a JSON object", false},
		"a key twice":             {`{"users":[],"queues":[{}],"qu\u0065ues":[]}`, `definitions have "queues" twice`, false},
		"no UTF-8":                {"{\"queues\":[{\"name\":\"\xff\",\"vhost\":\"/\"}]}", "definitions are not UTF-8", false},
		"a list":                  {`[]`, "definitions are not a JSON object", false},
		"null":                    {`null`, "definitions are not a JSON object", false},
		"queues are no list":      {`{"queues":{}}`, "queues is not a list", false},
		"a queue is no object":    {`{"queues":["q"]}`, "number 1 of queues is not an object", false},
		"no name":                 {`{"queues":[{}]}`, "number 1 of queues has no name", false},
		"an empty name":           {`{"queues":[{"name":"","vhost":"/"}]}`, "queue name is empty", true},
		"durable is a word":       {queue(`"durable":"yes"`), "durable is a string", false},
		"arguments are a list":    {queue(`"arguments":[1]`), "arguments are not an object", false},
		"no vhost":                {`{"queues":[{"name":"q"}]}`, "Virtual host does not exist and is not specified in definitions file.", false},
		"no such vhost":           {`{"queues":[{"name":"q","vhost":"v"}]}`, `Please create virtual host "v" prior to importing definitions.`, false},
		"twice":                   {`{"queues":[{"name":"q","vhost":"/"},{"name":"q","vhost":"/","durable":false}]}`, "queue 'q' in vhost '/': is there twice, and differs", false},
		"two types":               {queue(`"type":"quorum","arguments":{"x-queue-type":"classic"}`), "type is 'quorum', and x-queue-type 'classic'", false},
		"a stream":                {queue(`"type":"stream"`), "unsupported queue type 'stream'", true},
		"a stream by argument":    {queue(`"arguments":{"x-queue-type":"stream"}`), "unsupported queue type 'stream'", true},
		"a wrong argument":        {queue(`"arguments":{"x-message-ttl":-1}`), "invalid arg 'x-message-ttl'", true},
		"an unknown exchange":     {`{"exchanges":[{"name":"x","vhost":"/","type":"x-jms-topic"}]}`, "unknown exchange type 'x-jms-topic'", true},
		"a strange hash":          {`{"users":[{"name":"u","password_hash":"YWJj"}]}`, "password hash has 3 bytes", true},
		"a hash that takes years": {`{"users":[{"name":"u","password_hash":"$2b$31$abcdefghijklmnopqrstuu.DVVGLfP4tg2vyQ7TXKFqBaf6BeH1Ge","hashing_algorithm":"bcrypt"}]}`, "cost 31, want 04 to 14", true},
		"another algorithm":       {`{"users":[{"name":"u","password_hash":"c2FsdEmMWqvrOVzhEyF49Rc2SAE=","hashing_algorithm":"rabbit_password_hashing_sha256"}]}`, "and the hash one of rabbit_password_hashing_md5", true},
		"two passwords":           {`{"users":[{"name":"u","password_hash":"","password":"x"}]}`, "has a password and a password_hash", true},
		"tags are a number":       {`{"users":[{"name":"u","tags":1}]}`, "tags are neither a list of texts nor a text", false},
		"an unknown user limit":   {`{"users":[{"name":"u","limits":{"max-x":1}}]}`, "unknown limit 'max-x' of a user", true},
		"a user that is not":      {`{"permissions":[{"user":"u","vhost":"/","configure":"","write":"","read":""}]}`, "there is no user 'u'", false},
		"half a permission":       {`{"permissions":[{"user":"admin","vhost":"/","configure":"","write":""}]}`, "number 1 of permissions has no read", false},
		"a pattern of Erlang's":   {`{"permissions":[{"user":"admin","vhost":"/","configure":"(?!x)","write":"","read":""}]}`, "configure pattern", true},
		"an unknown policy key":   {`{"policies":[{"name":"p","vhost":"/","pattern":"","definition":{"x":1}}]}`, "are not recognised policy settings", true},
		"a policy of nothing":     {`{"policies":[{"name":"p","vhost":"/","pattern":"","apply-to":"","definition":{"expires":1}}]}`, "apply-to unrecognised", true},
		"a default of streams":    {`{"vhosts":[{"name":"v","default_queue_type":"stream"}]}`, "default queue type 'stream' is not supported", true},
		"limits that are none":    {`{"parameters":[{"component":"vhost-limits","vhost":"/","name":"limits","value":{"max-queues":"x"}}]}`, "limits are not an object of whole numbers", false},
		"more queues than may be": {`{"parameters":[{"component":"vhost-limits","vhost":"/","name":"limits","value":{"max-queues":0}}],"queues":[{"name":"q","vhost":"/"}]}`, `would exceed the limit of 0 queue(s)`, false},
		"a binding to nothing":    {`{"bindings":[{"source":"x","vhost":"/","destination":"q","destination_type":"box","routing_key":""}]}`, "destination_type is neither queue nor exchange", false},
	} {
		m := newModel(t)
		before := m.text(t, "")
		d, err := Parse([]byte(c.doc))
		if err == nil {
			_, err = Make(d, m.view(), Options{})
		}
		e, ok := errors.AsType[*Invalid](err)
		if !ok || !strings.Contains(e.Error(), c.want) || !Refused(err) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		if e.Problems[0].Unsupported != c.unsupported || strings.Contains(e.Error(), "skip_unsupported") != c.unsupported {
			t.Errorf("%s: %v", name, err)
		}
		if c.unsupported {
			if r := m.load(t, []byte(c.doc), Options{SkipUnsupported: true}); len(r.Skipped) == 0 || len(r.Changes) > 0 && name != "an unknown user limit" {
				t.Errorf("%s: left out %+v, changed %+v", name, r.Skipped, r.Changes)
			}
		}
		if err != nil && strings.Contains(err.Error(), "..") {
			t.Errorf("%s: two full stops: %v", name, err)
		}
		if after := m.text(t, ""); after != before {
			t.Errorf("%s: changes\n%s", name, after)
		}
	}
}

// TestSingleVhost carries one virtual host into another.
func TestSingleVhost(t *testing.T) {
	m := newModel(t)
	m.load(t, file(t, "rabbitmq-3.10.json"), Options{DefaultUser: "admin"})
	text := m.text(t, "a/b")
	if strings.Contains(text, `"users"`) || strings.Contains(text, `"vhost":`) || !strings.Contains(text, `"original_vhost_name":"a/b"`) {
		t.Errorf("export: %s", text)
	}
	m.load(t, []byte(`{"vhosts":[{"name":"copy"}]}`), Options{})
	m.load(t, []byte(text), Options{VHost: "copy"})
	if got := m.text(t, "copy"); strings.ReplaceAll(got, "copy", "a/b") != text {
		t.Errorf("copied:\n%s\nfrom\n%s", got, text)
	}
	r := m.load(t, file(t, "rabbitmq-3.10.json"), Options{VHost: "copy"})
	if m.view().Queue("copy", "app.quorum") == nil || len(r.Skipped) == 0 {
		t.Error("a document of a cluster is not loaded into one virtual host")
	}
}

// TestFailure stops where the cluster fails, tells what was made, and goes on the next time.
func TestFailure(t *testing.T) {
	m := newModel(t)
	m.fail = func(cmd catalog.Command) error {
		if c, ok := cmd.(*catalog.DeclareExchange); ok && c.Exchange.Name == "app.dead" {
			return broker.Errorf(broker.Unavailable, "no leader")
		}
		return nil
	}
	d, err := Parse(file(t, "rabbitmq-3.10.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(d, m.view(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Run(t.Context(), m)
	if err == nil || Refused(err) || len(r.Failed) != 1 || r.Failed[0].Name != "app.dead" || r.NotTried < 12 || r.Counts[KindUser].Created != 5 {
		t.Errorf("%v, %s, failed %+v", err, r.Summary(), r.Failed)
	}
	m.fail = nil
	m.load(t, file(t, "rabbitmq-3.10.json"), Options{})
	whole := newModel(t)
	whole.load(t, file(t, "rabbitmq-3.10.json"), Options{})
	if a, b := hashless(m.text(t, "")), hashless(whole.text(t, "")); a != b {
		t.Errorf("after a failure and a second run:\n%s\nwant\n%s", a, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err = Make(d, newModel(t).view(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Run(ctx, newModel(t)); err == nil || len(r.Changes) > 0 {
		t.Errorf("after its end: %v, %s", err, r.Summary())
	}
}

// hashless leaves out the admin's salted password.
func hashless(text string) string {
	i := strings.Index(text, `"password_hash"`)
	return text[:i] + text[i+70:]
}

// TestExportSaysWhatItAlters: arguments with bytes that JSON cannot have are exported otherwise, and the export says which.
func TestExportSaysWhatItAlters(t *testing.T) {
	m := newModel(t)
	v, ctx := "/", t.Context()
	for i := range alteredNamed + 2 {
		if _, _, err := m.DefineQueue(ctx, v, broker.QueueDeclare{Name: fmt.Sprint("q", i+10), Durable: true, Arguments: amqp.Table{{Name: "x-tag", Value: amqp.Array{int32(1), []byte{0xfe}}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := m.DefineQueue(ctx, v, broker.QueueDeclare{Name: "text", Durable: true, Arguments: amqp.Table{{Name: "x-tag", Value: "\u00fc"}}}); err != nil {
		t.Fatal(err)
	}
	d := Export(m.view(), "", Source{Cluster: "c"})
	if len(d.Altered) != alteredNamed+2 || d.Altered[0] != "queue 'q10' in vhost '/'" {
		t.Errorf("altered: %q", d.Altered)
	}
	if want := "Definitions of cluster 'c'. " + alteredText + ": queue 'q10' in vhost '/'; "; !strings.HasPrefix(d.Explanation, want) || !strings.HasSuffix(d.Explanation, "; and 2 others") {
		t.Errorf("explanation %q", d.Explanation)
	}
	for _, bad := range []any{"\xff", []byte("\xff"), amqp.Table{{Name: "\xff"}}, amqp.Table{{Name: "a", Value: "\xff"}}} {
		if isText(amqp.Table{{Name: "x", Value: bad}}) {
			t.Errorf("%q is text", bad)
		}
	}
}
