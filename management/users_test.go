package management

import (
	"cmp"
	"context"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// fakeUsers keeps users, vhosts and permissions.
type fakeUsers struct {
	*fakeBroker
	all         map[string]auth.User
	permissions map[[2]string]*auth.Permission      // by vhost and user
	topics      map[[3]string]*auth.TopicPermission // by vhost, user and exchange
	infos       map[string]broker.VhostInfo
}

func gone(what string) error { return broker.Errorf(broker.NotFound, "no %s", what) }

func invalid(err error) error { return broker.Errorf(broker.PreconditionFailed, "%v", err) }

func (f *fakeUsers) HasUser(_ context.Context, name string) (bool, error) {
	_, ok := f.all[name]
	return ok, nil
}

func (f *fakeUsers) Users() (list []*auth.User) {
	for _, name := range slices.Sorted(maps.Keys(f.all)) {
		u := f.all[name]
		list = append(list, &u)
	}
	return list
}

func (f *fakeUsers) FindUser(_ context.Context, name string) (*auth.User, error) {
	u, ok := f.all[name]
	if !ok {
		return nil, gone("user")
	}
	return &u, nil
}

func (f *fakeUsers) PutUser(_ context.Context, u auth.User) (bool, error) {
	old, ok := f.all[u.Name]
	u.Limits = old.Limits
	f.all[u.Name] = u
	return !ok, nil
}

func (f *fakeUsers) AddUser(_ context.Context, u auth.User) error {
	if _, ok := f.all[u.Name]; ok {
		return broker.Errorf(broker.PreconditionFailed, "user '%s' already exists", u.Name)
	}
	f.all[u.Name] = u
	return nil
}

func (f *fakeUsers) change(name string, how func(*auth.User)) error {
	u, ok := f.all[name]
	if !ok {
		return gone("user")
	}
	how(&u)
	f.all[name] = u
	return nil
}

func (f *fakeUsers) SetPassword(_ context.Context, name string, hash auth.PasswordHash) error {
	return f.change(name, func(u *auth.User) { u.PasswordHash = hash })
}

func (f *fakeUsers) SetTags(_ context.Context, name string, tags []string) error {
	return f.change(name, func(u *auth.User) { u.Tags = tags })
}

func (f *fakeUsers) DeleteUser(_ context.Context, name string) error {
	if _, ok := f.all[name]; !ok {
		return gone("user")
	}
	delete(f.all, name)
	return nil
}

func (f *fakeUsers) Permissions(vhost, user string) (list []*auth.Permission) {
	for _, k := range slices.SortedFunc(maps.Keys(f.permissions), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if (vhost == "" || vhost == k[0]) && (user == "" || user == k[1]) {
			list = append(list, f.permissions[k])
		}
	}
	return list
}

func (f *fakeUsers) PutPermission(_ context.Context, vhost, user, configure, write, read string) (bool, error) {
	p, err := auth.NewPermission(user, vhost, configure, write, read)
	if err != nil {
		return false, invalid(err)
	}
	_, ok := f.permissions[[2]string{vhost, user}]
	f.permissions[[2]string{vhost, user}] = p
	return !ok, nil
}

func (f *fakeUsers) DeletePermission(_ context.Context, vhost, user string) error {
	if _, ok := f.permissions[[2]string{vhost, user}]; !ok {
		return gone("permission")
	}
	delete(f.permissions, [2]string{vhost, user})
	return nil
}

func (f *fakeUsers) TopicPermissions(vhost, user string) (list []*auth.TopicPermission) {
	for _, k := range slices.SortedFunc(maps.Keys(f.topics), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) }) {
		if (vhost == "" || vhost == k[0]) && (user == "" || user == k[1]) {
			list = append(list, f.topics[k])
		}
	}
	return list
}

func (f *fakeUsers) PutTopicPermission(_ context.Context, vhost, user, exchange, write, read string) (bool, error) {
	p, err := auth.NewTopicPermission(user, vhost, exchange, write, read)
	if err != nil {
		return false, invalid(err)
	}
	_, ok := f.topics[[3]string{vhost, user, exchange}]
	f.topics[[3]string{vhost, user, exchange}] = p
	return !ok, nil
}

func (f *fakeUsers) DeleteTopicPermission(_ context.Context, vhost, user, exchange string) error {
	n := len(f.topics)
	maps.DeleteFunc(f.topics, func(k [3]string, _ *auth.TopicPermission) bool {
		return k[0] == vhost && k[1] == user && (exchange == "" || k[2] == exchange)
	})
	if len(f.topics) == n {
		return gone("topic permission")
	}
	return nil
}

func (f *fakeUsers) VhostInfos() (list []broker.VhostInfo) {
	for _, name := range slices.Sorted(maps.Keys(f.infos)) {
		list = append(list, f.infos[name])
	}
	return list
}

func (f *fakeUsers) PutVhost(_ context.Context, name string, s broker.VhostSettings) (bool, error) {
	h, ok := f.infos[name]
	switch {
	case !ok && s.Existing:
		return false, broker.Errorf(broker.NotFound, "vhost %s not found", name)
	case ok && s.New:
		return false, nil
	}
	h.Name = name
	if s.Description != nil {
		h.Description = *s.Description
	}
	if s.Tags != nil {
		h.Tags = *s.Tags
	}
	if s.DefaultQueueType != nil {
		h.DefaultQueueType = *s.DefaultQueueType
	}
	if s.Protected != nil {
		h.Protected = *s.Protected
	}
	f.infos[name] = h
	if !ok {
		f.vhosts[name] = nil
	}
	return !ok, nil
}

func (f *fakeUsers) DeleteVhost(_ context.Context, name string) error {
	h, ok := f.infos[name]
	switch {
	case !ok:
		return gone("vhost")
	case h.Protected:
		return broker.Errorf(broker.PreconditionFailed, "vhost '%s' is protected from deletion", name)
	}
	delete(f.infos, name)
	delete(f.vhosts, name)
	return nil
}

func newFakeUsers() *fakeUsers {
	return &fakeUsers{
		fakeBroker: &fakeBroker{vhosts: map[string][]string{"/": {"manager"}}},
		all: map[string]auth.User{
			"guest": {Name: "guest", PasswordHash: testHash, Tags: []string{"administrator"}, Limits: auth.UserLimits{Channels: auth.LimitOf(5)}},
		},
		permissions: map[[2]string]*auth.Permission{}, topics: map[[3]string]*auth.TopicPermission{},
		infos: map[string]broker.VhostInfo{"/": {Name: "/", DefaultQueueType: "classic"}},
	}
}

// testHash is the hash of "test12".
const testHash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

// testBcrypt is one of bcrypt.
const testBcrypt = "$2b$04$abcdefghijklmnopqrstuu.DVVGLfP4tg2vyQ7TXKFqBaf6BeH1Ge"

// request is one row of a table: what a user ("": an administrator) sends and gets. A wanted
// body that begins with "…" has to be part of the answer.
type request struct {
	user, method, path, body string
	status                   int
	want                     string
}

func (f *fakeCluster) expect(t *testing.T, rows []request) {
	t.Helper()
	for _, tc := range rows {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/api/"+tc.path, strings.NewReader(tc.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(cmp.Or(tc.user, "admin"), "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		part, partly := strings.CutPrefix(tc.want, "…")
		if w.Code != tc.status || partly && !strings.Contains(w.Body.String(), part) || !partly && w.Body.String() != tc.want {
			t.Errorf("%s %s %.80s by %q: %d %s\nwant %d %s", tc.method, tc.path, tc.body, tc.user, w.Code, w.Body, tc.status, tc.want)
		}
	}
}

func refusedAs(reason string) string { return `{"error":"bad_request","reason":"` + reason + `"}` }

const (
	noAdministrator = `{"error":"not_authorised","reason":"Not administrator user"}`
	notThere        = `{"error":"Object Not Found","reason":"Not Found"}`
)

func TestUsers(t *testing.T) {
	f, b := newFakeCluster("a"), newFakeUsers()
	f.apis["a"].cfg.Broker = b
	const guest = `{"name":"guest","password_hash":"` + testHash + `","hashing_algorithm":"rabbit_password_hashing_sha256","tags":["administrator"],"limits":{"max-channels":5}}`
	const plain = `{"name":"a/b","password_hash":"` + testHash + `","hashing_algorithm":"rabbit_password_hashing_sha256","tags":[],"limits":{}}`
	f.expect(t, []request{
		{"manager", "GET", "whoami", "", 200, `{"name":"manager","tags":["management"]}`},
		{"plain", "GET", "whoami", "", 401, `{"error":"not_authorised","reason":"Not management user"}`},
		{"", "GET", "users", "", 200, "[" + guest + "]"},
		{"", "GET", "users/guest", "", 200, guest},
		{"", "GET", "users/gone", "", 404, notThere},
		{"", "GET", "users/guest/queues", "", 200, "[]"},
		{"", "GET", "users/guest/queues?page=1", "", 200, `{"items":[],"total_count":0,"filtered_count":0,"item_count":0,"page":1,"page_count":0,"page_size":100}`},
		{"", "GET", "users/gone/queues", "", 404, notThere},
		{"manager", "GET", "users/guest/queues", "", 401, `{"error":"not_authorised","reason":"Not administrator user"}`},
		{"", "PUT", "users/a%2Fb", `{"password_hash":"` + testHash + `","tags":""}`, 201, ""},
		{"", "PUT", "users/a%2Fb", `{"password_hash":"` + testHash + `","hashing_algorithm":"rabbit_password_hashing_sha256","tags":[]}`, 204, ""},
		{"", "GET", "users/", "", 200, "[" + plain + "," + guest + "]"},
		{"", "PUT", "users/u", `{"password":"pw","tags":"management, policymaker"}`, 201, ""},
		{"", "GET", "users/u", "", 200, `…"tags":["management","policymaker"]`},
		{"", "PUT", "users/u", `{"password":"pw","tags":["own"]}`, 204, ""},
		{"", "GET", "users/u", "", 200, `…"tags":["own"]`},
		{"", "PUT", "users/nologin", `{"tags":""}`, 201, ""},
		{"", "GET", "users/nologin", "", 200, `…"password_hash":"",`},
		{"", "PUT", "users/w", `{"password":"pw"}`, 400, refusedAs("tags_not_present")},
		{"", "PUT", "users/w", `{"tags":"","password":"a","password_hash":"b"}`, 400, refusedAs("both_password_and_password_hash_are_provided")},
		{"", "PUT", "users/w", `{"tags":"","password":5}`, 400, refusedAs("password should be a string")},
		{"", "PUT", "users/w", `{"tags":"","password":null}`, 400, refusedAs("password should be a string")},
		{"", "PUT", "users/w", `{"tags":"","password_hash":5}`, 400, refusedAs("password_hash should be a string")},
		{"", "PUT", "users/w", `{"tags":"","password_hash":"!"}`, 400, refusedAs("password hash is not base64")},
		{"", "PUT", "users/w", `{"tags":"","password_hash":"YWJj"}`, 400, "…password hash has 3 bytes, want 36"},
		{"", "PUT", "users/w", `{"tags":"","password_hash":"` + testHash + `","hashing_algorithm":"rabbit_password_hashing_md5"}`, 400, `…hashing_algorithm is <<\"rabbit_password_hashing_md5\">>, and the hash one of rabbit_password_hashing_sha256`},
		{"", "PUT", "users/costly", `{"tags":"","password_hash":"` + testBcrypt + `","hashing_algorithm":"bcrypt"}`, 201, ""},
		{"", "PUT", "users/costly", `{"tags":"","password_hash":"` + testBcrypt + `","hashing_algorithm":"lavinmq_bcrypt"}`, 204, ""},
		{"", "GET", "users/costly", "", 200, `…"password_hash":"` + testBcrypt + `","hashing_algorithm":"bcrypt"`},
		{"", "PUT", "users/costly", `{"tags":"","password":"` + strings.Repeat("x", 73) + `"}`, 400, refusedAs("password has 73 bytes, bcrypt takes 72 at most")},
		{"", "PUT", "users/costly", `{"tags":"","password":"busy"}`, 503, `{"error":"service_unavailable","reason":"too many"}`},
		{"", "PUT", "users/costly", `{"tags":"","password_hash":"` + testBcrypt + `","hashing_algorithm":"rabbit_password_hashing_sha256"}`, 400, `…and the hash one of bcrypt`},
		{"", "PUT", "users/costly", `{"tags":"","password_hash":"` + testBcrypt + `","hashing_algorithm":5}`, 400, `…hashing_algorithm is 5, and the hash one of bcrypt`},
		{"", "PUT", "users/costly", `{"tags":"","password_hash":"$2b$31` + testBcrypt[6:] + `"}`, 400, refusedAs("password hash of bcrypt has cost 31, want 04 to 14")},
		{"", "GET", "auth/hash_password/pw", "", 200, `…{"ok":"$2a$04$`},
		{"", "GET", "auth/hash_password/busy", "", 503, "…too many"},
		{"", "DELETE", "users/costly", "", 204, ""},
		{"", "DELETE", "reset", "", 400, "…there is no database of statistics"},
		{"", "DELETE", "reset/a", "", 400, "…there is no database of statistics"},
		{"busy", "GET", "whoami", "", 503, "…too many logins at a time"},
		{"", "POST", "warren/users/busy/authenticate", `{"password":"secret"}`, 503, "…too many logins at a time"},
		{"", "PUT", "users/w", `{"tags":5,"password":"pw"}`, 400, refusedAs("tags should be a string or a list, actually was 5")},
		{"", "PUT", "users/w", `{"tags":[5],"password":"pw"}`, 400, refusedAs("tags should be strings, actually was 5")},
		{"", "PUT", "users/w", `{"tags"`, 400, refusedAs("not_json")},
		{"", "GET", "users/w", "", 404, notThere},
		{"", "POST", "users/bulk-delete", `{"users":["u","gone","nologin"]}`, 204, ""},
		{"", "POST", "users/bulk-delete", `{}`, 400, refusedAs("[{key_missing,users}]")},
		{"", "POST", "users/bulk-delete", `{"users":"guest"}`, 400, `…users should be a list of strings`},
		{"", "POST", "users/bulk-delete", `{"users":["guest",5]}`, 400, `…users should be a list of strings`},
		{"", "GET", "users", "", 200, "[" + plain + "," + guest + "]"},
		{"", "GET", "users/without-permissions", "", 200, "[" + plain + "," + guest + "]"},
		{"", "PUT", "permissions/%2F/guest", `{"configure":"","write":"","read":""}`, 201, ""},
		{"", "GET", "users/without-permissions", "", 200, "[" + plain + "]"},
		{"", "DELETE", "users/a%2Fb", "", 204, ""},
		{"", "DELETE", "users/a%2Fb", "", 404, notThere},
		{"", "POST", "users", "", 405, `{"error":"Method Not Allowed","reason":"Method Not Allowed"}`},

		{"", "PUT", "warren/users/n", `{"password":"pw"}`, 201, ""},
		{"", "PUT", "warren/users/n", `{"password":"other"}`, 400, refusedAs("user 'n' already exists")},
		{"", "PUT", "warren/users/n/tags", `{"tags":["t"]}`, 204, ""},
		{"", "PUT", "warren/users/n/tags", `{}`, 400, refusedAs("[{key_missing,tags}]")},
		{"", "PUT", "warren/users/gone/tags", `{"tags":[]}`, 404, notThere},
		{"", "PUT", "warren/users/n/password", `{"password_hash":"` + testHash + `"}`, 204, ""},
		{"", "GET", "users/n", "", 200, `{"name":"n","password_hash":"` + testHash + `","hashing_algorithm":"rabbit_password_hashing_sha256","tags":["t"],"limits":{}}`},
		{"", "PUT", "warren/users/n/password", `{}`, 400, refusedAs("[{key_missing,password}]")},
		{"", "PUT", "warren/users/gone/password", `{"password":"pw"}`, 404, notThere},
		{"", "DELETE", "warren/users/n/password", "", 204, ""},
		{"", "GET", "users/n", "", 200, `…"password_hash":"",`},
		{"", "POST", "warren/users/monitor/authenticate", `{"password":"secret"}`, 200, `{"authenticated":true}`},
		{"", "POST", "warren/users/monitor/authenticate", `{"password":"wrong"}`, 200, `{"authenticated":false}`},
		{"", "POST", "warren/users/monitor/authenticate", `{"password":5}`, 400, refusedAs("password should be a string")},
		{"", "POST", "warren/users/monitor/authenticate", `{}`, 400, refusedAs("[{key_missing,password}]")},
	})
	if u := b.all["guest"]; u.PasswordHash != testHash {
		t.Errorf("%+v", u)
	}
}

func TestPermissions(t *testing.T) {
	f, b := newFakeCluster("a"), newFakeUsers()
	f.apis["a"].cfg.Broker = b
	const all = `{"configure":".*","write":"w","read":""}`
	const entry = `{"user":"guest","vhost":"/","configure":".*","write":"w","read":""}`
	const topic = `{"user":"guest","vhost":"/","exchange":"x","write":"^a","read":".*"}`
	f.expect(t, []request{
		{"", "GET", "permissions", "", 200, "[]"},
		{"", "GET", "permissions/%2F/guest", "", 404, notThere},
		{"", "PUT", "permissions/%2F/guest", all, 201, ""},
		{"", "PUT", "permissions/%2F/guest", all, 204, ""},
		{"", "GET", "permissions/%2F/guest", "", 200, entry},
		{"", "GET", "permissions/", "", 200, "[" + entry + "]"},
		{"", "GET", "users/guest/permissions", "", 200, "[" + entry + "]"},
		{"", "GET", "users/gone/permissions", "", 404, notThere},
		{"", "GET", "vhosts/%2F/permissions", "", 200, "[" + entry + "]"},
		{"", "GET", "vhosts/gone/permissions", "", 404, notThere},
		{"", "PUT", "permissions/gone/guest", all, 400, refusedAs("vhost_or_user_not_found")},
		{"", "PUT", "permissions/%2F/gone", all, 400, refusedAs("vhost_or_user_not_found")},
		{"", "PUT", "permissions/%2F/guest", `{"write":""}`, 400, refusedAs("[{key_missing,configure},{key_missing,read}]")},
		{"", "PUT", "permissions/%2F/guest", `{"configure":"","write":"","read":5}`, 400, refusedAs("read should be a string, actually was 5")},
		{"", "PUT", "permissions/%2F/guest", `{"configure":"(","write":"","read":""}`, 400, "…configure pattern: error parsing regexp"},
		{"", "DELETE", "permissions/%2F/guest", "", 204, ""},
		{"", "DELETE", "permissions/%2F/guest", "", 404, notThere},

		{"", "PUT", "topic-permissions/%2F/guest", `{"exchange":"x","write":"^a","read":".*"}`, 201, ""},
		{"", "PUT", "topic-permissions/%2F/guest", `{"exchange":"x","write":"^a","read":".*"}`, 204, ""},
		{"", "PUT", "topic-permissions/%2F/guest", `{"exchange":"a/y","write":"","read":""}`, 201, ""},
		{"", "PUT", "topic-permissions/%2F/guest", `{"exchange":"x","write":"^a"}`, 400, refusedAs("[{key_missing,read}]")},
		{"", "PUT", "topic-permissions/%2F/guest", `{"exchange":"x","write":"(","read":""}`, 400, "…write pattern: error parsing regexp"},
		{"", "PUT", "topic-permissions/%2F/gone", `{"exchange":"x","write":"","read":""}`, 400, refusedAs("vhost_or_user_not_found")},
		{"", "GET", "topic-permissions/%2F/guest/x", "", 200, "[" + topic + "]"},
		{"", "GET", "topic-permissions/%2F/guest/z", "", 404, notThere},
		{"", "DELETE", "topic-permissions/%2F/guest/a%2Fy", "", 204, ""},
		{"", "GET", "topic-permissions/%2F/guest", "", 200, "[" + topic + "]"},
		{"", "GET", "topic-permissions", "", 200, "[" + topic + "]"},
		{"", "GET", "users/guest/topic-permissions", "", 200, "[" + topic + "]"},
		{"", "GET", "vhosts/%2F/topic-permissions", "", 200, "[" + topic + "]"},
		{"", "DELETE", "topic-permissions/%2F/guest", "", 204, ""},
		{"", "DELETE", "topic-permissions/%2F/guest", "", 404, notThere},
	})
}

func TestVhosts(t *testing.T) {
	f, b := newFakeCluster("a"), newFakeUsers()
	f.apis["a"].cfg.Broker = b
	vhost := func(name, description, tags, typ, protected string) string {
		metadata := `"description":"` + description + `","tags":` + tags + `,"default_queue_type":"` + typ + `"`
		return `{"name":"` + name + `",` + metadata + `,"protected_from_deletion":` + protected + `,"tracing":false,"metadata":{` + metadata + `},` +
			`"messages":0,"messages_details":{"rate":0},"messages_ready":0,"messages_ready_details":{"rate":0},"messages_unacknowledged":0,"messages_unacknowledged_details":{"rate":0},` +
			`"cluster_state":{"node-a":"running","node-b":"running"}}`
	}
	root := vhost("/", "", "[]", "classic", "false")
	f.expect(t, []request{
		{"", "GET", "vhosts", "", 200, "[" + root + "]"},
		{"", "GET", "vhosts/%2F", "", 200, root},
		{"", "PUT", "vhosts/v", `{"description":"d","tags":"a, b","default_queue_type":"quorum","tracing":false}`, 201, ""},
		{"", "PUT", "vhosts/v", ``, 204, ""},
		{"", "GET", "vhosts/v", "", 200, vhost("v", "d", `["a","b"]`, "quorum", "false")},
		{"", "GET", "permissions/v/admin", "", 404, notThere}, // admin is no user of the fake's
		{"", "GET", "vhosts/", "", 200, "[" + root + "," + vhost("v", "d", `["a","b"]`, "quorum", "false") + "]"},
		{"manager", "GET", "vhosts", "", 200, "[" + root + "]"},
		{"manager", "GET", "vhosts/v", "", 401, `{"error":"not_authorised","reason":"User not authorised to access object"}`},
		{"", "PUT", "vhosts/v", `{"tags":["c"],"description":"e"}`, 204, ""},
		{"", "POST", "vhosts/v/deletion/protection", "", 204, ""},
		{"monitor", "GET", "vhosts/v", "", 200, vhost("v", "e", `["c"]`, "quorum", "true")},
		{"", "DELETE", "vhosts/v", "", 412, `{"error":"precondition_failed","reason":"vhost 'v' is protected from deletion"}`},
		{"", "DELETE", "vhosts/v/deletion/protection", "", 204, ""},
		{"", "POST", "vhosts/gone/deletion/protection", "", 404, notThere},
		{"", "DELETE", "vhosts/v", "", 204, ""},
		{"", "DELETE", "vhosts/v", "", 404, notThere},
		{"", "GET", "vhosts/v", "", 404, notThere},
		{"", "PUT", "vhosts/v", `{"tracing":true}`, 400, refusedAs("tracing is not supported")},
		{"", "PUT", "vhosts/v", `{"tracing":"often"}`, 400, `…not_boolean: tracing is`},
		{"", "PUT", "vhosts/v", `{"description":5}`, 400, refusedAs("description should be a string, actually was 5")},
		{"", "PUT", "vhosts/v", `{"default_queue_type":""}`, 400, refusedAs("default_queue_type must not be an empty string")},
		{"", "PUT", "vhosts/v", `{"default_queue_type":null,"description":null,"tags":null}`, 201, ""},
		{"", "DELETE", "vhosts/v", "", 204, ""},
		{"", "PUT", "vhosts/v", `{"tags":5}`, 400, refusedAs("tags should be a string or a list, actually was 5")},
		{"", "PUT", "warren/vhosts/v", `{"description":"one","default_queue_type":"undefined","protected_from_deletion":"true"}`, 201, ""},
		{"", "PUT", "warren/vhosts/v", `{"description":"two"}`, 204, ""},
		{"", "GET", "vhosts/v", "", 200, vhost("v", "one", `[]`, "", "true")},
		{"", "PATCH", "warren/vhosts/v", `{"description":"three"}`, 204, ""},
		{"", "GET", "vhosts/v", "", 200, vhost("v", "three", `[]`, "", "true")},
		{"", "PATCH", "warren/vhosts/gone", `{"description":"three"}`, 404, notThere},
		{"", "PATCH", "warren/vhosts/v", `{"description":5}`, 400, refusedAs("description should be a string, actually was 5")},
	})
	if p := b.Permissions("v", "admin"); len(p) != 1 || p[0].Pattern(auth.Configure) != ".*" {
		t.Errorf("who made the vhost has %v", p)
	}
}

// Only administrators may look at users and permissions, or change vhosts.
func TestAdministratorsOnly(t *testing.T) {
	f, b := newFakeCluster("a"), newFakeUsers()
	f.apis["a"].cfg.Broker = b
	var rows []request
	for _, who := range []string{"manager", "monitor", "maker"} {
		for _, what := range []string{
			"GET users", "GET users/", "GET users/guest", "GET users/without-permissions", "PUT users/guest", "DELETE users/guest", "POST users/bulk-delete",
			"PUT warren/users/guest", "PUT warren/users/guest/tags", "PUT warren/users/guest/password", "DELETE warren/users/guest/password",
			"POST warren/users/guest/authenticate", "GET users/guest/permissions", "GET users/guest/topic-permissions",
			"GET permissions", "GET permissions/", "GET permissions/%2F/guest", "PUT permissions/%2F/guest", "DELETE permissions/%2F/guest",
			"GET topic-permissions", "GET topic-permissions/", "GET topic-permissions/%2F/guest", "GET topic-permissions/%2F/guest/x",
			"PUT topic-permissions/%2F/guest", "DELETE topic-permissions/%2F/guest", "DELETE topic-permissions/%2F/guest/x",
			"PUT vhosts/v", "DELETE vhosts/v", "PUT warren/vhosts/v", "PATCH warren/vhosts/v", "GET vhosts/%2F/permissions", "GET vhosts/%2F/topic-permissions",
			"POST vhosts/%2F/deletion/protection", "DELETE vhosts/%2F/deletion/protection",
		} {
			method, path, _ := strings.Cut(what, " ")
			rows = append(rows, request{who, method, path, "{}", 401, noAdministrator})
		}
	}
	f.expect(t, rows)
	if len(b.all) != 1 || len(b.infos) != 1 {
		t.Errorf("%v %v", b.all, b.infos)
	}
}
