package process

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcPolicies: a policy is in effect everywhere when it is answered, is listed and goes again; what is none is refused.
func rpcPolicies(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	admin := warrenv1.NewAdminServiceClient(rpc.conn)
	q := r.queue("q", nil)
	set := func(admin warrenv1.AdminServiceClient, p *warrenv1.Policy) (bool, error) {
		resp, err := admin.SetPolicy(rpc.ctx, &warrenv1.SetPolicyRequest{Policy: p})
		return resp.GetCreated(), err
	}
	first := &warrenv1.Policy{
		Name: r.name("p1"), Pattern: "^" + q + "$", ApplyTo: warrenv1.PolicyTarget_POLICY_TARGET_QUEUES, Priority: -5,
		Definition: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"max-length": numberValue(1), "overflow": textValue("reject-publish")}},
	}
	second := &warrenv1.Policy{Name: r.name("p2"), Pattern: "^no such", Definition: first.GetDefinition()}
	operators := &warrenv1.Policy{Name: r.name("o"), Pattern: first.GetPattern(), Operator: true, Definition: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"message-ttl": numberValue(100_000)}}}
	for _, p := range []*warrenv1.Policy{first, second, operators} {
		if created, err := set(admin, p); err != nil || !created {
			t.Fatalf("%v, %v", created, err)
		}
	}
	if created, err := set(admin, first); err != nil || created {
		t.Errorf("a second time: %v, %v", created, err)
	}
	if got, err := rpc.topology.GetQueue(rpc.ctx, &warrenv1.GetQueueRequest{Queue: q}); err != nil || got.GetQueue().GetPolicy() != first.GetName() ||
		got.GetQueue().GetOperatorPolicy() != operators.GetName() {
		t.Errorf("%v, %v", got, err)
	}
	rpc.fill(q, "a")
	_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "b")})
	wantCode(t, err, codes.ResourceExhausted, "REFUSED")

	list := func(admin warrenv1.AdminServiceClient, req *warrenv1.ListPoliciesRequest) (mine []*warrenv1.Policy, pages int) {
		for ; ; pages++ {
			resp, err := admin.ListPolicies(rpc.ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range resp.GetPolicies() {
				if strings.HasPrefix(p.GetName(), r.name("")) {
					mine = append(mine, p)
				}
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				return mine, pages + 1
			}
		}
	}
	mine, pages := list(admin, &warrenv1.ListPoliciesRequest{Vhost: new("/"), PageSize: 1})
	if len(mine) != 2 || pages < 2 || mine[0].GetName() != first.GetName() || mine[0].GetPriority() != -5 || mine[0].GetPattern() != first.GetPattern() ||
		mine[0].GetApplyTo() != first.GetApplyTo() || mine[0].GetDefinition().GetFields()["max-length"].GetInt64Value() != 1 {
		t.Errorf("%d pages: %v", pages, mine)
	}
	if mine, _ := list(admin, &warrenv1.ListPoliciesRequest{Operator: true}); len(mine) != 1 || !mine[0].GetOperator() {
		t.Errorf("%v", mine)
	}

	// Policymakers make policies where they have a permission, and no operator policies.
	user := r.user("maker", "", "", "")
	mustCtl(t, r.nodes[1], "set_user_tags", user, "policymaker")
	maker := warrenv1.NewAdminServiceClient(rpcAt(t, c.Node(1), user, passwordFirst).conn)
	if _, err := set(maker, second); err != nil {
		t.Error(err)
	}
	_, err = set(maker, operators)
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	_, err = set(maker, &warrenv1.Policy{Vhost: "none", Name: "p", Definition: first.GetDefinition()})
	wantCode(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	_, err = maker.ListPolicies(rpc.ctx, &warrenv1.ListPoliciesRequest{Operator: true})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	_, err = maker.ListUsers(rpc.ctx, &warrenv1.ListUsersRequest{})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	_, err = set(maker, &warrenv1.Policy{Name: "p", Pattern: "(", Definition: first.GetDefinition()})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	wantAudited(t, r.nodes[1], user, "/warren.v1.AdminService/SetPolicy", "result=refused vhost=none policy=p operator=false")

	for _, p := range []*warrenv1.Policy{first, second, operators} {
		gone := &warrenv1.DeletePolicyRequest{Name: p.GetName(), Operator: p.GetOperator()}
		if _, err := admin.DeletePolicy(rpc.ctx, gone); err != nil {
			t.Error(err)
		}
		_, err = admin.DeletePolicy(rpc.ctx, gone)
		wantCode(t, err, codes.NotFound, "NOT_FOUND")
	}
	rpc.fill(q, "b")
}

// rpcUsers makes a user, who may do what it is given and no more, and deletes it.
func rpcUsers(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	ctx, admin := rpc.ctx, warrenv1.NewAdminServiceClient(rpc.conn)
	name, q := r.name("user"), r.queue("q", nil)
	plain := func(password string) *warrenv1.Password {
		return &warrenv1.Password{Kind: &warrenv1.Password_Plain{Plain: password}}
	}
	add := &warrenv1.AddUserRequest{Name: name, Tags: []string{"management", " other "}, Password: plain("secret of the test")}
	if _, err := admin.AddUser(ctx, add); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = ctl(t, r.nodes[0], "delete_user", name) }) // it may be gone
	_, err := admin.AddUser(ctx, add)
	wantCode(t, err, codes.FailedPrecondition, "PRECONDITION_FAILED")
	get := func(password string) error {
		_, err := rpcAt(t, c.Node(2), name, password).consume.Get(ctx, &warrenv1.GetRequest{Queue: q})
		return err
	}
	wantCode(t, get("secret of the test"), codes.PermissionDenied, "NOT_ALLOWED")
	p := &warrenv1.Permission{User: name, Read: "^" + q + "$"}
	if resp, err := admin.SetPermission(ctx, &warrenv1.SetPermissionRequest{Permission: p}); err != nil || !resp.GetCreated() {
		t.Errorf("%v, %v", resp, err)
	}
	if err := get("secret of the test"); err != nil {
		t.Error(err)
	}
	list, err := admin.ListPermissions(ctx, &warrenv1.ListPermissionsRequest{Vhost: new(""), User: &name})
	if l := list.GetPermissions(); err != nil || len(l) != 1 || l[0].GetVhost() != "/" || l[0].GetRead() != p.GetRead() || l[0].GetWrite() != "" {
		t.Errorf("%v, %v", list, err)
	}
	topic := &warrenv1.TopicPermission{User: name, Exchange: "amq.topic", Write: "^a", Read: "^b"}
	if resp, err := admin.SetTopicPermission(ctx, &warrenv1.SetTopicPermissionRequest{Permission: topic}); err != nil || !resp.GetCreated() {
		t.Errorf("%v, %v", resp, err)
	}
	topics, err := admin.ListTopicPermissions(ctx, &warrenv1.ListTopicPermissionsRequest{User: &name})
	if l := topics.GetPermissions(); err != nil || len(l) != 1 || l[0].GetExchange() != "amq.topic" || l[0].GetWrite() != "^a" || l[0].GetRead() != "^b" {
		t.Errorf("%v, %v", topics, err)
	}
	_, err = admin.SetTags(ctx, &warrenv1.SetTagsRequest{Name: name, Tags: []string{"monitoring"}})
	_, err2 := admin.SetPassword(ctx, &warrenv1.SetPasswordRequest{Name: name, Password: plain("another secret of the test")})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	users, err := admin.ListUsers(ctx, &warrenv1.ListUsersRequest{})
	at := slices.IndexFunc(users.GetUsers(), func(u *warrenv1.User) bool { return u.GetName() == name })
	if err != nil || at < 0 || !slices.Equal(users.GetUsers()[at].GetTags(), []string{"monitoring"}) || !users.GetUsers()[at].GetHasPassword() {
		t.Errorf("%v, %v", users, err)
	}
	wantCode(t, get("secret of the test"), codes.Unauthenticated, "LOGIN_REFUSED")
	if err := get("another secret of the test"); err != nil {
		t.Error(err)
	}
	rpcUsersRefused(t, admin, rpc, name)

	for _, exchange := range []*string{new("amq.topic"), nil} {
		_, err := admin.DeleteTopicPermission(ctx, &warrenv1.DeleteTopicPermissionRequest{User: name, Exchange: exchange})
		if exchange == nil {
			wantCode(t, err, codes.NotFound, "NOT_FOUND")
		} else if err != nil {
			t.Error(err)
		}
	}
	_, err = admin.DeletePermission(ctx, &warrenv1.DeletePermissionRequest{User: name})
	_, err2 = admin.DeleteUser(ctx, &warrenv1.DeleteUserRequest{Name: name})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	wantCode(t, get("another secret of the test"), codes.Unauthenticated, "LOGIN_REFUSED")
	_, err = admin.DeleteUser(ctx, &warrenv1.DeleteUserRequest{Name: name})
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	wantAudited(t, r.nodes[1], "guest", "/warren.v1.AdminService/AddUser", "result=done name="+name)
	if log, err := os.ReadFile(r.nodes[1].LogFile()); err != nil || strings.Contains(string(log), "secret of the test") {
		t.Errorf("passwords are in the log, or it cannot be read: %v", err)
	}
}

// rpcUsersRefused: what makes no sense of users and permissions.
func rpcUsersRefused(t *testing.T, admin warrenv1.AdminServiceClient, rpc *rpcClient, name string) {
	hash := &warrenv1.Password{Kind: &warrenv1.Password_Hash{Hash: "no hash"}}
	for what, do := range map[string]func() error{
		"no name": func() error { _, err := admin.AddUser(rpc.ctx, &warrenv1.AddUserRequest{}); return err },
		"hash": func() error {
			_, err := admin.SetPassword(rpc.ctx, &warrenv1.SetPasswordRequest{Name: name, Password: hash})
			return err
		},
		"tag": func() error {
			_, err := admin.SetTags(rpc.ctx, &warrenv1.SetTagsRequest{Name: name, Tags: []string{" "}})
			return err
		},
		"large request": func() error {
			_, err := admin.SetTags(rpc.ctx, &warrenv1.SetTagsRequest{Name: name, Tags: slices.Repeat([]string{strings.Repeat("t", 255)}, 5000)})
			return err
		},
		"pattern": func() error {
			_, err := admin.SetPermission(rpc.ctx, &warrenv1.SetPermissionRequest{Permission: &warrenv1.Permission{User: name, Read: "("}})
			return err
		},
		"topic pattern": func() error {
			_, err := admin.SetTopicPermission(rpc.ctx, &warrenv1.SetTopicPermissionRequest{Permission: &warrenv1.TopicPermission{User: name, Exchange: "x", Read: "("}})
			return err
		},
		"no exchange": func() error {
			_, err := admin.SetTopicPermission(rpc.ctx, &warrenv1.SetTopicPermissionRequest{Permission: &warrenv1.TopicPermission{User: name}})
			return err
		},
		"an empty exchange": func() error {
			_, err := admin.DeleteTopicPermission(rpc.ctx, &warrenv1.DeleteTopicPermissionRequest{User: name, Exchange: new("")})
			return err
		},
		"page": func() error {
			_, err := admin.ListUsers(rpc.ctx, &warrenv1.ListUsersRequest{PageToken: "!"})
			return err
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s: taken", what)
		} else {
			wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		}
	}
	_, err := admin.SetPermission(rpc.ctx, &warrenv1.SetPermissionRequest{Permission: &warrenv1.Permission{Vhost: "none", User: name}})
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	_, err = admin.SetTags(rpc.ctx, &warrenv1.SetTagsRequest{Name: name + "x"})
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
}
