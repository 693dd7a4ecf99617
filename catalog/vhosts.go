package catalog

import "github.com/warrenmq/warren/amqp"

// VhostParts is a set of a vhost's settings.
type VhostParts uint64

// The settings. The numbers are stored. VhostName is none: alone it makes a vhost that does not exist, and changes nothing of one that does.
const (
	VhostName VhostParts = 1 << iota
	VhostDescription
	VhostTags
	VhostQueueType
	VhostProtection
	vhostPartsEnd
)

func (c *PutVhost) fields(f *fields) {
	c.Vhost.fields(f)
	f.optional((*uint64)(&c.Only))
}

func (c *PutVhost) apply(tx *txn) (Result, *amqp.Error) {
	h := c.Vhost
	if old := tx.Vhost(h.Name); old != nil && c.Only != 0 {
		h = *old
		take(c.Only&VhostDescription, &h.Description, c.Vhost.Description)
		take(c.Only&VhostTags, &h.Tags, c.Vhost.Tags)
		take(c.Only&VhostQueueType, &h.DefaultQueueType, c.Vhost.DefaultQueueType)
		take(c.Only&VhostProtection, &h.Protected, c.Vhost.Protected)
	}
	return Result{Changed: tx.putVhost(&h)}, nil
}

func take[T any](part VhostParts, to *T, from T) {
	if part != 0 {
		*to = from
	}
}
