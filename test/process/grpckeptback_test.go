package process

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcKeptBack: a call that began while its user was an administrator does nothing for one who is deleted, or no administrator any more, when the request comes.
func rpcKeptBack(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	root := rpcAt(t, c.Node(1), "guest", "guest")
	admin := warrenv1.NewAdminServiceClient(root.conn)
	password := &warrenv1.Password{Kind: &warrenv1.Password_Plain{Plain: "secret"}}
	administrator := []string{"administrator"}
	kept := func(user string) (goOn func(name string) error) {
		t.Helper()
		if _, err := admin.AddUser(root.ctx, &warrenv1.AddUserRequest{Name: user, Tags: administrator, Password: password}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // it may be gone, or one of the test's
			_, _ = admin.DeleteUser(root.ctx, &warrenv1.DeleteUserRequest{Name: user})
		})
		rpc := rpcAt(t, c.Node(2), user, "secret")
		// Its headers are sent at once. A second call on the connection tells that they have been read.
		call, err := rpc.conn.NewStream(rpc.ctx, &grpc.StreamDesc{ClientStreams: true}, warrenv1.AdminService_AddUser_FullMethodName)
		r.noError("begin a call", err)
		_, err = warrenv1.NewAdminServiceClient(rpc.conn).ListUsers(rpc.ctx, &warrenv1.ListUsersRequest{})
		r.noError("list users", err)
		return func(name string) error {
			t.Helper()
			// What it is written to may have ended.
			_ = call.SendMsg(&warrenv1.AddUserRequest{Name: name, Tags: administrator, Password: password})
			_ = call.CloseSend()
			return call.RecvMsg(&warrenv1.AddUserResponse{})
		}
	}
	deleted, demoted, still, other := r.name("deleted"), r.name("demoted"), r.name("still"), r.name("other")
	asDeleted, asDemoted, asStill, asOther := kept(deleted), kept(demoted), kept(still), kept(other)
	for _, user := range []string{deleted, other} {
		_, err := admin.DeleteUser(root.ctx, &warrenv1.DeleteUserRequest{Name: user})
		r.noError("delete a user", err)
	}
	_, err := admin.AddUser(root.ctx, &warrenv1.AddUserRequest{Name: other, Tags: administrator, Password: password}) // somebody else
	r.noError("add a user", err)
	_, err = admin.SetTags(root.ctx, &warrenv1.SetTagsRequest{Name: demoted, Tags: []string{"management"}})
	r.noError("set tags", err)
	mine := r.name("mine")
	wantCode(t, asDeleted(mine), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, asOther(mine), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, asDemoted(mine), codes.PermissionDenied, "ACCESS_REFUSED")
	if err := asStill(mine); err != nil {
		t.Errorf("an administrator's: %v", err)
	}
	_, err = admin.DeleteUser(root.ctx, &warrenv1.DeleteUserRequest{Name: mine})
	r.noError("delete a user", err)
}
