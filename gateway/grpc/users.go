package grpc

import (
	"context"
	"errors"
	"strings"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// checkGiven is checkName for names that have to be there.
func checkGiven(what, name string) error {
	if name == "" {
		return invalid("%s is missing", what)
	}
	return checkName(what, name)
}

// administers does what only administrators may, and logs it.
func administers[T any](ctx context.Context, a *adminService, method string, on []any, do func() (T, error)) (T, error) {
	return audited(ctx, a.s, method, on, func() (resp T, err error) {
		if err := needs(ctx, auth.TagAdministrator); err != nil {
			return resp, err
		}
		return do()
	})
}

// hashOf is the hash of a new password, "" if there is none.
func (a *adminService) hashOf(ctx context.Context, p *warrenv1.Password) (hash auth.PasswordHash, err error) {
	switch k := p.GetKind().(type) {
	case *warrenv1.Password_Plain:
		hash, err = a.s.cfg.HashPassword(ctx, k.Plain, callerOf(ctx).peer)
		if _, ok := errors.AsType[*broker.Error](err); err != nil && !ok {
			err = invalid("%v", err)
		}
		return hash, err
	case *warrenv1.Password_Hash:
		hash = auth.PasswordHash(k.Hash)
		if err := hash.Validate(); err != nil {
			return "", invalid("%v", err)
		}
	}
	return hash, nil
}

// tagsOf are a client's tags, without space around them, as over HTTP.
func tagsOf(list []string) ([]string, error) {
	tags := make([]string, len(list))
	for i := range list {
		tags[i] = strings.TrimSpace(list[i])
		if err := checkGiven("tag", tags[i]); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// AddUser implements the service.
func (a *adminService) AddUser(ctx context.Context, req *warrenv1.AddUserRequest) (*warrenv1.AddUserResponse, error) {
	on := []any{"name", req.GetName()}
	return administers(ctx, a, warrenv1.AdminService_AddUser_FullMethodName, on, func() (*warrenv1.AddUserResponse, error) {
		u := auth.User{Name: req.GetName()}
		if err := checkGiven("name", u.Name); err != nil {
			return nil, err
		}
		var err error
		if u.Tags, err = tagsOf(req.GetTags()); err != nil {
			return nil, err
		}
		if u.PasswordHash, err = a.hashOf(ctx, req.GetPassword()); err != nil {
			return nil, err
		}
		return &warrenv1.AddUserResponse{}, a.s.broker.AddUser(ctx, u)
	})
}

// SetPassword implements the service.
func (a *adminService) SetPassword(ctx context.Context, req *warrenv1.SetPasswordRequest) (*warrenv1.SetPasswordResponse, error) {
	on := []any{"name", req.GetName()}
	return administers(ctx, a, warrenv1.AdminService_SetPassword_FullMethodName, on, func() (*warrenv1.SetPasswordResponse, error) {
		if err := checkGiven("name", req.GetName()); err != nil {
			return nil, err
		}
		hash, err := a.hashOf(ctx, req.GetPassword())
		if err != nil {
			return nil, err
		}
		return &warrenv1.SetPasswordResponse{}, a.s.broker.SetPassword(ctx, req.GetName(), hash)
	})
}

// SetTags implements the service.
func (a *adminService) SetTags(ctx context.Context, req *warrenv1.SetTagsRequest) (*warrenv1.SetTagsResponse, error) {
	on := []any{"name", req.GetName(), "tags", strings.Join(req.GetTags(), ",")}
	return administers(ctx, a, warrenv1.AdminService_SetTags_FullMethodName, on, func() (*warrenv1.SetTagsResponse, error) {
		if err := checkGiven("name", req.GetName()); err != nil {
			return nil, err
		}
		tags, err := tagsOf(req.GetTags())
		if err != nil {
			return nil, err
		}
		return &warrenv1.SetTagsResponse{}, a.s.broker.SetTags(ctx, req.GetName(), tags)
	})
}

// DeleteUser implements the service.
func (a *adminService) DeleteUser(ctx context.Context, req *warrenv1.DeleteUserRequest) (*warrenv1.DeleteUserResponse, error) {
	on := []any{"name", req.GetName()}
	return administers(ctx, a, warrenv1.AdminService_DeleteUser_FullMethodName, on, func() (*warrenv1.DeleteUserResponse, error) {
		if err := checkGiven("name", req.GetName()); err != nil {
			return nil, err
		}
		return &warrenv1.DeleteUserResponse{}, a.s.broker.DeleteUser(ctx, req.GetName())
	})
}

// ListUsers implements the service.
func (a *adminService) ListUsers(ctx context.Context, req *warrenv1.ListUsersRequest) (*warrenv1.ListUsersResponse, error) {
	if err := needs(ctx, auth.TagAdministrator); err != nil {
		return nil, err
	}
	cut, next, err := page(a.s.broker.Users(), req.GetPageSize(), req.GetPageToken(), func(u *auth.User) string { return u.Name })
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListUsersResponse{NextPageToken: next}
	for _, u := range cut {
		resp.Users = append(resp.Users, &warrenv1.User{Name: text(u.Name), Tags: allTexts(u.Tags), HasPassword: u.PasswordHash != ""})
	}
	return resp, nil
}
