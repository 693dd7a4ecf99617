package broker

import (
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
)

// Shovel is a shovel of the catalog.
type Shovel = catalog.Shovel

// Shovels lists the shovels of the cluster, by vhost and name.
func (b *Broker) Shovels() []*Shovel { return slices.Collect(b.cat.View().Shovels()) }

// PutShovel makes or replaces a shovel for a user; value is its definition, which has been looked at. The error is an *Error.
func (b *Broker) PutShovel(ctx context.Context, vhost, name, user, value string) error {
	return b.changeSeen(ctx, &catalog.PutShovel{Vhost: vhost, Name: name, User: user, Value: value})
}

// DeleteShovel deletes a shovel, with since only the one that was put there then; there is false if there was none. The error is an *Error.
func (b *Broker) DeleteShovel(ctx context.Context, vhost, name string, since uint64) (there bool, err error) {
	res, err := b.administer(ctx, &catalog.DeleteShovel{Vhost: vhost, Name: name, Since: since})
	return res.Changed, err
}
