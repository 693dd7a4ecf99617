package grpc

import (
	"context"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
)

// checkEnds checks the names of the two that a permission is between.
func checkEnds(vhost, user string) error {
	if err := checkName("vhost", vhost); err != nil {
		return err
	}
	return checkGiven("user", user)
}

// SetPermission implements the service.
func (a *adminService) SetPermission(ctx context.Context, req *warrenv1.SetPermissionRequest) (*warrenv1.SetPermissionResponse, error) {
	p, vhost := req.GetPermission(), vhostOf(req.GetPermission().GetVhost())
	on := []any{"vhost", vhost, "name", p.GetUser()}
	return administers(ctx, a, warrenv1.AdminService_SetPermission_FullMethodName, on, func() (*warrenv1.SetPermissionResponse, error) {
		if err := checkEnds(vhost, p.GetUser()); err != nil {
			return nil, err
		}
		if _, err := auth.NewPermission(p.GetUser(), vhost, p.GetConfigure(), p.GetWrite(), p.GetRead()); err != nil {
			return nil, invalid("%v", err)
		}
		created, err := a.s.broker.PutPermission(ctx, vhost, p.GetUser(), p.GetConfigure(), p.GetWrite(), p.GetRead())
		return &warrenv1.SetPermissionResponse{Created: created}, err
	})
}

// DeletePermission implements the service.
func (a *adminService) DeletePermission(ctx context.Context, req *warrenv1.DeletePermissionRequest) (*warrenv1.DeletePermissionResponse, error) {
	vhost := vhostOf(req.GetVhost())
	on := []any{"vhost", vhost, "name", req.GetUser()}
	return administers(ctx, a, warrenv1.AdminService_DeletePermission_FullMethodName, on, func() (*warrenv1.DeletePermissionResponse, error) {
		if err := checkEnds(vhost, req.GetUser()); err != nil {
			return nil, err
		}
		return &warrenv1.DeletePermissionResponse{}, a.s.broker.DeletePermission(ctx, vhost, req.GetUser())
	})
}

// listOf is what the requests for lists of permissions say: of which virtual host and user, "" for all.
func listOf(ctx context.Context, vhost, user *string) (inVhost, ofUser string, err error) {
	if err := needs(ctx, auth.TagAdministrator); err != nil {
		return "", "", err
	}
	if vhost != nil {
		inVhost = vhostOf(*vhost)
	}
	if user == nil {
		return inVhost, "", checkName("vhost", inVhost)
	}
	return inVhost, *user, checkEnds(inVhost, *user)
}

// ListPermissions implements the service.
func (a *adminService) ListPermissions(ctx context.Context, req *warrenv1.ListPermissionsRequest) (*warrenv1.ListPermissionsResponse, error) {
	vhost, user, err := listOf(ctx, req.Vhost, req.User)
	if err != nil {
		return nil, err
	}
	key := func(p *auth.Permission) string { return keyOf(p.Vhost, p.User) }
	cut, next, err := page(a.s.broker.Permissions(vhost, user), req.GetPageSize(), req.GetPageToken(), key)
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListPermissionsResponse{NextPageToken: next}
	for _, p := range cut {
		resp.Permissions = append(resp.Permissions, &warrenv1.Permission{
			Vhost: text(p.Vhost), User: text(p.User), Configure: text(p.Pattern(auth.Configure)), Write: text(p.Pattern(auth.Write)), Read: text(p.Pattern(auth.Read)),
		})
	}
	return resp, nil
}

// SetTopicPermission implements the service.
func (a *adminService) SetTopicPermission(ctx context.Context, req *warrenv1.SetTopicPermissionRequest) (*warrenv1.SetTopicPermissionResponse, error) {
	p, vhost := req.GetPermission(), vhostOf(req.GetPermission().GetVhost())
	on := []any{"vhost", vhost, "name", p.GetUser(), "exchange", p.GetExchange()}
	return administers(ctx, a, warrenv1.AdminService_SetTopicPermission_FullMethodName, on, func() (*warrenv1.SetTopicPermissionResponse, error) {
		if err := checkEnds(vhost, p.GetUser()); err != nil {
			return nil, err
		}
		if err := checkGiven("exchange", p.GetExchange()); err != nil {
			return nil, err
		}
		if _, err := auth.NewTopicPermission(p.GetUser(), vhost, p.GetExchange(), p.GetWrite(), p.GetRead()); err != nil {
			return nil, invalid("%v", err)
		}
		created, err := a.s.broker.PutTopicPermission(ctx, vhost, p.GetUser(), p.GetExchange(), p.GetWrite(), p.GetRead())
		return &warrenv1.SetTopicPermissionResponse{Created: created}, err
	})
}

// DeleteTopicPermission implements the service.
func (a *adminService) DeleteTopicPermission(ctx context.Context, req *warrenv1.DeleteTopicPermissionRequest) (*warrenv1.DeleteTopicPermissionResponse, error) {
	vhost := vhostOf(req.GetVhost())
	on := []any{"vhost", vhost, "name", req.GetUser(), "exchange", req.GetExchange()}
	return administers(ctx, a, warrenv1.AdminService_DeleteTopicPermission_FullMethodName, on, func() (*warrenv1.DeleteTopicPermissionResponse, error) {
		if err := checkEnds(vhost, req.GetUser()); err != nil {
			return nil, err
		}
		if req.Exchange != nil {
			if err := checkGiven("exchange", req.GetExchange()); err != nil {
				return nil, err
			}
		}
		return &warrenv1.DeleteTopicPermissionResponse{}, a.s.broker.DeleteTopicPermission(ctx, vhost, req.GetUser(), req.GetExchange())
	})
}

// ListTopicPermissions implements the service.
func (a *adminService) ListTopicPermissions(ctx context.Context, req *warrenv1.ListTopicPermissionsRequest) (*warrenv1.ListTopicPermissionsResponse, error) {
	vhost, user, err := listOf(ctx, req.Vhost, req.User)
	if err != nil {
		return nil, err
	}
	key := func(p *auth.TopicPermission) string { return keyOf(p.Vhost, p.User, p.Exchange) }
	cut, next, err := page(a.s.broker.TopicPermissions(vhost, user), req.GetPageSize(), req.GetPageToken(), key)
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListTopicPermissionsResponse{NextPageToken: next}
	for _, p := range cut {
		resp.Permissions = append(resp.Permissions, &warrenv1.TopicPermission{
			Vhost: text(p.Vhost), User: text(p.User), Exchange: text(p.Exchange), Write: text(p.Pattern(auth.Write)), Read: text(p.Pattern(auth.Read)),
		})
	}
	return resp, nil
}
