package definitions

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
)

// planAccess plans virtual hosts, users and permissions.
func (p *planner) planAccess() {
	for i := range p.doc.Vhosts {
		p.planVhost(&p.doc.Vhosts[i])
	}
	for i := range p.doc.Users {
		p.planUser(&p.doc.Users[i])
	}
	for i := range p.doc.Permissions {
		p.planPermission(&p.doc.Permissions[i])
	}
	for i := range p.doc.TopicPermissions {
		p.planTopicPermission(&p.doc.TopicPermissions[i])
	}
	for i := range p.doc.GlobalParameters {
		p.skip(Item{Kind: KindGlobalParameter, Name: p.doc.GlobalParameters[i].Name}, "nothing here uses global parameters")
	}
}

// first is the first that is said, nil if nothing is.
func first[T any](list ...*T) *T {
	i := slices.IndexFunc(list, func(v *T) bool { return v != nil })
	if i < 0 {
		return nil
	}
	return list[i]
}

func (p *planner) planVhost(from *Vhost) {
	item := Item{Kind: KindVhost, Name: from.Name}
	if p.again(item, from) {
		return
	}
	old := p.view.Vhost(from.Name)
	h := catalog.Vhost{Name: from.Name}
	if old != nil {
		h = *old
	}
	want, only := fields{}, catalog.VhostName
	if v := first(from.Description, from.Metadata.Description); v != nil {
		want["description"], h.Description = *v, *v
		only |= catalog.VhostDescription
	}
	if v := first(from.Tags, from.Metadata.Tags); v != nil {
		want["tags"], h.Tags = []string(*v), *v
		only |= catalog.VhostTags
	}
	if v := first(from.Protected, from.Metadata.Protected); v != nil {
		want["protected_from_deletion"], h.Protected = *v, *v
		only |= catalog.VhostProtection
	}
	if v := first(from.Tracing, from.Metadata.Tracing); v != nil && *v {
		p.skip(Item{Kind: KindKey, VHost: from.Name, Name: "tracing"}, "there is no tracing")
	}
	if v := first(from.DefaultQueueType, from.Metadata.DefaultQueueType); v != nil {
		switch typ := *v; {
		case typ == "" || typ == "undefined":
			h.DefaultQueueType = ""
		case !slices.Contains(broker.QueueTypes(), typ):
			p.unsupported(item, "default queue type '%s' is not supported: want classic or quorum", typ)
			return
		default:
			h.DefaultQueueType = typ
		}
		want["default_queue_type"] = *vhostOf(&h).DefaultQueueType
		only |= catalog.VhostQueueType
	}
	cmd := &catalog.PutVhost{Vhost: h, Only: only}
	if p.view.Level() < 2 {
		cmd.Only = 0 // each setting for itself from level 2 on
	}
	if !p.checked(item, cmd) {
		return
	}
	p.vhosts[from.Name] = &h
	if len(from.Limits) > 0 {
		p.limits[from.Name] = from.Limits
	}
	var list []Difference
	if old != nil {
		now := vhostOf(old)
		list = differences(fields{
			"description": *now.Description, "tags": []string(*now.Tags), "protected_from_deletion": *now.Protected, "default_queue_type": *now.DefaultQueueType,
		}, want)
	}
	p.add(stageVhosts, item, old != nil, list, change{commands: []catalog.Command{cmd}})
}

// hidden stands for what a report does not show.
const hidden = "(hidden)"

func (p *planner) planUser(from *User) {
	item := Item{Kind: KindUser, Name: from.Name}
	if p.again(item, from) {
		return
	}
	old := p.view.User(from.Name)
	u, have := auth.User{Name: from.Name}, fields{}
	if old != nil {
		u = *old
		have["tags"], have["limits"] = []string(*userOf(old).Tags), userOf(old).Limits
	}
	want := fields{}
	if from.Tags != nil {
		want["tags"], u.Tags = []string(*from.Tags), *from.Tags
	}
	changed, err := setPassword(&u, from, p.opt.Hashing)
	if err != nil {
		p.unsupported(item, "%v", err)
		return
	}
	commands := []catalog.Command{&catalog.PutUser{User: u}}
	if old != nil {
		commands = userChanges(old, &u)
	}
	if len(from.Limits) > 0 {
		cmd := &catalog.PutUserLimits{User: from.Name}
		if unknown := overlay(from.Limits, cmd.Limits.Each); unknown != "" {
			p.unsupported(item, "unknown limit '%s' of a user", unknown)
			return
		}
		after := u.Limits
		overlay(from.Limits, after.Each)
		want["limits"] = limitsOf(after.Each)
		commands = append(commands, cmd)
	}
	if !p.checked(item, commands...) {
		return
	}
	p.users[from.Name] = true
	list := differences(have, want)
	if changed {
		list = append(list, Difference{"password_hash", hidden, hidden})
	}
	if old != nil && from.Name == p.opt.DefaultUser && len(list) > 0 {
		p.skip(item, "the default user stays as it is")
		return
	}
	p.add(stageUsers, item, old != nil, list, change{commands: commands})
}

// userChanges make of a user what the document says. What it does not say somebody else may change meanwhile, and a user that is deleted meanwhile stays so.
func userChanges(old, u *auth.User) (list []catalog.Command) {
	if !slices.Equal(old.Tags, u.Tags) {
		list = append(list, &catalog.ChangeUser{User: auth.User{Name: u.Name, Tags: u.Tags}, What: catalog.SetTags})
	}
	if old.PasswordHash != u.PasswordHash {
		list = append(list, &catalog.ChangeUser{User: auth.User{Name: u.Name, PasswordHash: u.PasswordHash}, What: catalog.SetPassword})
	}
	return list
}

// setPassword gives a user the password that the document says, and tells whether that is another one.
func setPassword(u *auth.User, from *User, hashing auth.Hashing) (changed bool, err error) {
	old := u.PasswordHash
	switch {
	case from.PasswordHash != nil && from.Password != nil:
		return false, fmt.Errorf("has a password and a password_hash")
	case from.Password != nil:
		if old.Matches(*from.Password) || old == "" && *from.Password == "" {
			return false, nil
		}
		if u.PasswordHash, err = hashing.Hash(*from.Password); err != nil {
			return false, err
		}
	case from.PasswordHash != nil:
		u.PasswordHash = auth.PasswordHash(*from.PasswordHash)
		if err := u.PasswordHash.Validate(); err != nil {
			return false, err
		}
		if from.HashingAlgorithm != "" {
			if err := u.PasswordHash.CheckAlgorithm(from.HashingAlgorithm); err != nil {
				return false, err
			}
		}
	}
	return u.PasswordHash != old, nil
}

// overlay puts limits over those of an object, or tells which name is unknown.
func overlay(l limits, each func(func(string, *auth.Limit))) (unknown string) {
	known := map[string]bool{}
	each(func(name string, to *auth.Limit) {
		known[name] = true
		if v, ok := l[name]; ok {
			*to = auth.LimitOf(v)
		}
	})
	for name := range l {
		if !known[name] {
			unknown = max(unknown, name)
		}
	}
	return unknown
}

// parties tells whether user and virtual host of a permission are there, or will be.
func (p *planner) parties(item Item, user string) bool {
	if !p.users[user] {
		p.problem(item, "there is no user '%s'", user)
		return false
	}
	return true
}

func (p *planner) planPermission(from *Permission) {
	item := Item{Kind: KindPermission, Name: from.User}
	if !p.home(&item, from.VHost) || p.again(item, from) || !p.parties(item, from.User) {
		return
	}
	cmd := &catalog.PutPermission{Vhost: from.VHost, User: from.User, Configure: from.Configure, Write: from.Write, Read: from.Read}
	if !p.checked(item, cmd) {
		return
	}
	old := p.view.Permission(from.VHost, from.User)
	var list []Difference
	if old != nil {
		now := permissionOf(old)
		list = differences(fields{"configure": now.Configure, "write": now.Write, "read": now.Read},
			fields{"configure": from.Configure, "write": from.Write, "read": from.Read})
	}
	if p.keeps(from.User) && len(list) > 0 {
		p.skip(item, "the default user stays as it is")
		return
	}
	p.add(stagePermissions, item, old != nil, list, change{commands: []catalog.Command{cmd}})
}

// keeps tells whether a user keeps what it has.
func (p *planner) keeps(user string) bool {
	return user == p.opt.DefaultUser && p.view.User(user) != nil
}

func (p *planner) planTopicPermission(from *TopicPermission) {
	item := Item{Kind: KindTopicPermission, Name: from.User + " on " + from.Exchange}
	if !p.home(&item, from.VHost) || p.again(item, from) || !p.parties(item, from.User) {
		return
	}
	if from.Exchange == "" { // RabbitMQ takes it; its management page has this exchange first in the list
		p.skip(item, "the default exchange has no topics")
		return
	}
	cmd := &catalog.PutTopicPermission{Vhost: from.VHost, User: from.User, Exchange: from.Exchange, Write: from.Write, Read: from.Read}
	if !p.checked(item, cmd) {
		return
	}
	old := p.view.TopicPermission(from.VHost, from.User, from.Exchange)
	var list []Difference
	if old != nil {
		now := topicPermissionOf(old)
		list = differences(fields{"write": now.Write, "read": now.Read}, fields{"write": from.Write, "read": from.Read})
	}
	if p.keeps(from.User) && (old == nil || len(list) > 0) {
		// Without an entry all keys are good: one can only take.
		p.skip(item, "the default user stays as it is")
		return
	}
	p.add(stagePermissions, item, old != nil, list, change{commands: []catalog.Command{cmd}})
}

// planParameters plans limits of virtual hosts, operator policies and shovels, which are parameters in RabbitMQ.
func (p *planner) planParameters() {
	for i := range p.doc.Parameters {
		from := &p.doc.Parameters[i]
		item := Item{Kind: KindParameter, Name: from.Component + "/" + from.Name}
		switch from.Component {
		case componentLimits:
			item = Item{Kind: KindLimits, Name: from.Name}
		case componentOperator:
			item = Item{Kind: KindOperatorPolicy, Name: from.Name}
		case componentShovel:
			item = Item{Kind: KindShovel, Name: from.Name}
		}
		if !p.home(&item, from.VHost) || p.again(item, from) {
			continue
		}
		switch item.Kind {
		case KindLimits:
			var l limits
			if err := json.Unmarshal(from.Value, &l); err != nil {
				p.problem(item, "%v", err)
			} else if len(l) > 0 {
				p.limits[item.VHost] = l
			}
		case KindOperatorPolicy:
			var pol Policy
			if err := json.Unmarshal(ofPairs(from.Value), &pol); err != nil || len(pol.Definition) == 0 {
				p.problem(item, "value is no operator policy")
				continue
			}
			p.policy(item, &pol, true)
		case KindShovel:
			p.shovel(item, from.Value)
		default:
			p.skip(item, "there is nothing here that uses parameters of '%s'", from.Component)
		}
	}
	p.planLimits()
}

// planLimits plans the limits of virtual hosts, wherever the document has them.
func (p *planner) planLimits() {
	for _, name := range sortedKeys(p.limits) {
		l := p.limits[name]
		item := Item{Kind: KindLimits, VHost: name, Name: limitsName}
		cmd := &catalog.PutVhostLimits{Vhost: name, Replace: true}
		if unknown := overlay(l, cmd.Limits.Each); unknown != "" {
			p.unsupported(item, "unknown limit '%s' of a vhost", unknown)
			continue
		}
		have := limits{}
		if h := p.view.Vhost(name); h != nil {
			have = limitsOf(h.Limits.Each)
		}
		p.add(stageParameters, item, len(have) > 0, differences(fields{"limits": have}, fields{"limits": l}), change{commands: []catalog.Command{cmd}})
	}
}
