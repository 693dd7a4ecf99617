package broker

import (
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
)

// What management tools do with vhosts. A change holds on every living node when it is
// answered.

// VhostInfo describes a vhost.
type VhostInfo struct {
	Name, Description string
	Tags              []string
	DefaultQueueType  string // "classic" or "quorum"
	Protected         bool   // refuses deletion
}

func describeVhost(h *catalog.Vhost) VhostInfo {
	typ := h.DefaultQueueType
	if typ == "" {
		typ = typeClassic
	}
	return VhostInfo{h.Name, h.Description, h.Tags, typ, h.Protected}
}

const (
	typeClassic = "classic"
	typeQuorum  = "quorum"
)

// VhostInfos describes the vhosts in the order of their names.
func (b *Broker) VhostInfos() (list []VhostInfo) {
	for h := range b.cat.View().Vhosts() {
		list = append(list, describeVhost(h))
	}
	return list
}

// VhostSettings are what can be set of a vhost; nil leaves it as it is.
type VhostSettings struct {
	Description      *string
	Tags             *[]string
	DefaultQueueType *string
	Protected        *bool
	// Existing and New are conditions: to make no vhost (NotFound if there is none), and to change none.
	Existing, New bool
}

// PutVhost makes a vhost with its predeclared exchanges, or changes the settings of one. The
// error is an *Error: PreconditionFailed for settings that cannot be, NotFound by a condition.
func (b *Broker) PutVhost(ctx context.Context, name string, s VhostSettings) (created bool, err error) {
	view, err := b.fresh(ctx)
	if err != nil {
		return false, err
	}
	h := catalog.Vhost{Name: name}
	old := view.Vhost(name)
	switch {
	case old == nil && s.Existing:
		return false, Errorf(NotFound, "vhost %s not found", name)
	case old != nil && s.New:
		return false, nil
	case old != nil:
		h = *old
	}
	if t := s.DefaultQueueType; t != nil && !slices.Contains([]string{"", typeClassic, typeQuorum}, *t) {
		return false, Errorf(PreconditionFailed, "default queue type '%s' is not supported: want classic or quorum", *t)
	}
	cmd := &catalog.PutVhost{
		Only: catalog.VhostName | set(&h.Description, s.Description, catalog.VhostDescription) | set(&h.Tags, s.Tags, catalog.VhostTags) |
			set(&h.DefaultQueueType, s.DefaultQueueType, catalog.VhostQueueType) | set(&h.Protected, s.Protected, catalog.VhostProtection),
	}
	// The vhost may go, or come, before the command is applied.
	if s.Existing {
		cmd.Only |= catalog.VhostExisting
	}
	if s.New {
		cmd.Only |= catalog.VhostNew
	}
	if cmd.Vhost = h; view.Level() < levelVhostParts {
		cmd.Only = 0
	}
	return b.changeEverywhere(ctx, cmd)
}

// levelVhostParts is the level of the cluster from which on settings of a vhost are changed one by one.
const levelVhostParts = 2

func set[T any](to, from *T, part catalog.VhostParts) catalog.VhostParts {
	if from == nil {
		return 0
	}
	*to = *from
	return part
}

// DeleteVhost deletes a vhost with all in it. Its connections end, on each node as that learns of
// it. The error is an *Error: NotFound, or PreconditionFailed if it is protected.
func (b *Broker) DeleteVhost(ctx context.Context, name string) error {
	changed, err := b.changeEverywhere(ctx, &catalog.DeleteVhost{Name: name})
	if err == nil && !changed {
		return Errorf(NotFound, "vhost %s not found", name)
	}
	return err
}
