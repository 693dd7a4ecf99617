package grpc

import (
	"context"
	"errors"
	"math"
	"unicode/utf8"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/policy"
)

type adminService struct {
	warrenv1.UnimplementedAdminServiceServer
	s *Server
}

// policyTargets are what policies apply to, by the numbers of the API.
var policyTargets = []policy.ApplyTo{
	policy.All, policy.All, policy.Exchanges, policy.Queues, policy.ClassicQueues, policy.QuorumQueues, policy.Streams,
}

// targetOf is the API's number.
func targetOf(a policy.ApplyTo) warrenv1.PolicyTarget {
	for i := 1; i < len(policyTargets); i++ {
		if policyTargets[i] == a {
			return warrenv1.PolicyTarget(i)
		}
	}
	return warrenv1.PolicyTarget_POLICY_TARGET_UNSPECIFIED
}

// policyOf is a client's policy, which is valid. The error is a *refusal.
func policyOf(p *warrenv1.Policy) (spec policy.Spec, err error) {
	if p.GetApplyTo() < 0 || int(p.GetApplyTo()) >= len(policyTargets) {
		return spec, invalid("policies do not apply to %d", p.GetApplyTo())
	}
	spec = policy.Spec{
		VHost: vhostOf(p.GetVhost()), Name: p.GetName(), Operator: p.GetOperator(), Pattern: p.GetPattern(), ApplyTo: policyTargets[p.GetApplyTo()],
		Priority: p.GetPriority(),
	}
	if spec.Definition, err = definitionOf(p.GetDefinition()); err != nil {
		return spec, err
	}
	if _, err := policy.New(spec); err != nil {
		return spec, invalid("%v", err)
	}
	return spec, checkName("vhost", spec.VHost)
}

// definitionOf is a client's definition with the types that policies have: those of JSON.
func definitionOf(t *warrenv1.Table) (wire.Table, error) {
	table, err := tableOf(t)
	if err != nil {
		return nil, err
	}
	for i := range table {
		f := &table[i]
		ok := utf8.ValidString(f.Name)
		switch v := f.Value.(type) {
		case bool:
		case string:
			ok = ok && utf8.ValidString(v)
		case int8:
			f.Value = int64(v)
		case uint8:
			f.Value = int64(v)
		case int16:
			f.Value = int64(v)
		case uint16:
			f.Value = int64(v)
		case int32:
			f.Value = int64(v)
		case uint32:
			f.Value = int64(v)
		case int64:
		case float32:
			f.Value = float64(v)
			ok = ok && finite(float64(v))
		case float64:
			ok = ok && finite(v)
		default:
			ok = false
		}
		if !ok {
			return nil, invalid("the value of '%s' is of a type that no policy has", text(f.Name))
		}
	}
	return table, nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// makers are the tags of those who may make policies.
func makers(operator bool) []string {
	if operator {
		return []string{auth.TagAdministrator}
	}
	return []string{auth.TagPolicymaker, auth.TagAdministrator}
}

// makes refuses callers that may not make policies in a virtual host, as over HTTP: administrators do everywhere, policymakers where they
// have a permission, and no operator policies. It gives the name of the virtual host, which exists.
func (a *adminService) makes(ctx context.Context, vhost string, operator bool) (string, error) {
	if err := needs(ctx, makers(operator)...); err != nil {
		return "", err
	}
	return a.s.vhost(ctx, vhost, callerOf(ctx).may(auth.TagAdministrator))
}

// SetPolicy implements the service.
func (a *adminService) SetPolicy(ctx context.Context, req *warrenv1.SetPolicyRequest) (*warrenv1.SetPolicyResponse, error) {
	p := req.GetPolicy()
	on := []any{"vhost", vhostOf(p.GetVhost()), "policy", p.GetName(), "operator", p.GetOperator()}
	return audited(ctx, a.s, warrenv1.AdminService_SetPolicy_FullMethodName, on, func() (*warrenv1.SetPolicyResponse, error) {
		vhost, err := a.makes(ctx, p.GetVhost(), p.GetOperator())
		if err != nil {
			return nil, err
		}
		spec, err := policyOf(p)
		if err != nil {
			return nil, err
		}
		created, err := a.s.broker.PutPolicy(ctx, spec)
		if wrong, ok := errors.AsType[*policy.Invalid](err); ok {
			return nil, invalid("%v", wrong)
		}
		if err != nil {
			return nil, err
		}
		a.s.cfg.SettlePolicies(ctx, vhost)
		return &warrenv1.SetPolicyResponse{Created: created}, nil
	})
}

// DeletePolicy implements the service.
func (a *adminService) DeletePolicy(ctx context.Context, req *warrenv1.DeletePolicyRequest) (*warrenv1.DeletePolicyResponse, error) {
	on := []any{"vhost", vhostOf(req.GetVhost()), "policy", req.GetName(), "operator", req.GetOperator()}
	return audited(ctx, a.s, warrenv1.AdminService_DeletePolicy_FullMethodName, on, func() (*warrenv1.DeletePolicyResponse, error) {
		vhost, err := a.makes(ctx, req.GetVhost(), req.GetOperator())
		if err != nil {
			return nil, err
		}
		if err := checkGiven("name", req.GetName()); err != nil {
			return nil, err
		}
		if err := a.s.broker.DeletePolicy(ctx, vhost, req.GetName(), req.GetOperator()); err != nil {
			return nil, err
		}
		a.s.cfg.SettlePolicies(ctx, vhost)
		return &warrenv1.DeletePolicyResponse{}, nil
	})
}

// ListPolicies implements the service.
func (a *adminService) ListPolicies(ctx context.Context, req *warrenv1.ListPoliciesRequest) (*warrenv1.ListPoliciesResponse, error) {
	var vhosts []string
	if req.Vhost != nil {
		vhost, err := a.makes(ctx, req.GetVhost(), req.GetOperator())
		if err != nil {
			return nil, err
		}
		vhosts = []string{vhost}
	} else {
		if err := needs(ctx, makers(req.GetOperator())...); err != nil {
			return nil, err
		}
		for _, name := range a.s.broker.Vhosts() {
			if _, err := a.makes(ctx, name, req.GetOperator()); err == nil {
				vhosts = append(vhosts, name)
			}
		}
	}
	var list []*policy.Policy
	for _, vhost := range vhosts {
		list = append(list, a.s.broker.Policies(vhost, req.GetOperator())...)
	}
	cut, next, err := page(list, req.GetPageSize(), req.GetPageToken(), func(p *policy.Policy) string { return keyOf(p.VHost, p.Name) })
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListPoliciesResponse{NextPageToken: next}
	for _, p := range cut {
		resp.Policies = append(resp.Policies, &warrenv1.Policy{
			Vhost: text(p.VHost), Name: text(p.Name), Pattern: text(p.Pattern), Priority: p.Priority, ApplyTo: targetOf(p.ApplyTo),
			Definition: tableFor(p.Definition), Operator: p.Operator,
		})
	}
	return resp, nil
}
