package catalog

import "github.com/warrenmq/warren/amqp"

// VhostParts is a set of a vhost's settings, and of conditions.
type VhostParts uint64

// The settings. The numbers are stored. VhostName is none: alone it makes a vhost that does not exist, and changes nothing of one that does.
const (
	VhostName VhostParts = 1 << iota
	VhostDescription
	VhostTags
	VhostQueueType
	VhostProtection
	// VhostExisting makes no vhost: NotFound if there is none.
	VhostExisting
	// VhostNew changes no vhost: one that exists stays as it is.
	VhostNew
	vhostPartsEnd
)

func (c *PutVhost) fields(f *fields) {
	c.Vhost.fields(f)
	f.optional((*uint64)(&c.Only))
}

func (c *PutVhost) apply(tx *txn) (Result, *amqp.Error) {
	h := c.Vhost
	old := tx.Vhost(h.Name)
	switch {
	case old == nil && c.Only&VhostExisting != 0:
		return Result{}, errNoVhost(h.Name)
	case old != nil && c.Only&VhostNew != 0:
		return Result{}, nil
	}
	if old != nil && c.Only != 0 {
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
