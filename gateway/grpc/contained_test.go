package grpc

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

func TestAFaultEndsItsCall(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(*patience) {})
	users := warrenv1.NewAdminServiceClient(connected(t, addr))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer good.token")
	for n := range uint64(2) {
		_, err := users.ListUsers(ctx, &warrenv1.ListUsersRequest{}) // there is no broker
		if status.Code(err) != codes.Internal || status.Convert(err).Message() != "internal error" {
			t.Errorf("%v", err)
		}
		if got := s.cfg.Guard.Contained()[work]; got != n+1 {
			t.Errorf("%d faults contained", got)
		}
	}
	if r, ok := errors.AsType[*refusal](<-s.apart(func() error { panic("a fault") })); !ok || r.code != codes.Internal {
		t.Errorf("part of a call: %v", r)
	}
	if err := <-s.apart(func() error { return nil }); err != nil {
		t.Errorf("part of a call: %v", err)
	}
}
