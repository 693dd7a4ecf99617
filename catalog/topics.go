package catalog

import (
	"iter"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
)

// PutTopicPermission gives or replaces what a user may do with the keys of one
// topic exchange, which need not exist yet.
type PutTopicPermission struct{ Vhost, User, Exchange, Write, Read string }

// DeleteTopicPermission takes a user's entry for an exchange, or with an empty
// name those for all exchanges of the vhost.
type DeleteTopicPermission struct{ Vhost, User, Exchange string }

func (*PutTopicPermission) kind() commandKind    { return kindPutTopicPermission }
func (*DeleteTopicPermission) kind() commandKind { return kindDeleteTopicPermission }

func (c *PutTopicPermission) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.User)
	str(f, &c.Exchange)
	str(f, &c.Write)
	str(f, &c.Read)
}

func (c *DeleteTopicPermission) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.User)
	str(f, &c.Exchange)
}

func (c *PutTopicPermission) validate() error {
	if c.Exchange == "" {
		return refused("the default exchange has no topics")
	}
	if _, err := c.compile(); err != nil {
		return refused("%v", err)
	}
	return firstError(checkName("vhost name", c.Vhost), checkName("user name", c.User), checkName("exchange name", c.Exchange))
}

func (c *DeleteTopicPermission) validate() error {
	if c.Exchange != "" {
		if err := checkName("exchange name", c.Exchange); err != nil {
			return err
		}
	}
	return firstError(checkName("vhost name", c.Vhost), checkName("user name", c.User))
}

func (c *PutTopicPermission) compile() (*auth.TopicPermission, error) {
	return auth.NewTopicPermission(c.User, c.Vhost, c.Exchange, c.Write, c.Read)
}

func (c *PutTopicPermission) apply(tx *txn) (Result, *amqp.Error) {
	switch {
	case tx.Vhost(c.Vhost) == nil:
		return Result{}, errNoVhost(c.Vhost)
	case tx.User(c.User) == nil:
		return Result{}, errNoUser(c.User)
	}
	p, err := c.compile()
	if err != nil {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "%v", err)
	}
	created := tx.TopicPermission(c.Vhost, c.User, c.Exchange) == nil
	tx.topics.put(topicKey(p), p)
	return Result{Changed: created}, nil
}

func (c *DeleteTopicPermission) apply(tx *txn) (Result, *amqp.Error) {
	var res Result
	for p := range tx.topics.prefix(key(c.Vhost, c.User)) {
		if c.Exchange == "" || p.Exchange == c.Exchange {
			tx.topics.del(topicKey(p))
			res.Changed = true
		}
	}
	return res, nil
}

func topicKey(p *auth.TopicPermission) []byte { return key(p.Vhost, p.User, p.Exchange) }

func topicRecord(p *auth.TopicPermission) *PutTopicPermission {
	return &PutTopicPermission{Vhost: p.Vhost, User: p.User, Exchange: p.Exchange, Write: p.Pattern(auth.Write), Read: p.Pattern(auth.Read)}
}

// TopicPermission returns what user may do with the keys of a topic exchange, nil
// (everything) if there is no entry.
func (v *View) TopicPermission(vhost, user, exchange string) *auth.TopicPermission {
	var buf [128]byte
	p, _ := v.topics.get(appendKey(buf[:0], vhost, user, exchange))
	return p
}

// TopicPermissions walks the topic permissions by vhost, user and exchange.
func (v *View) TopicPermissions() iter.Seq[*auth.TopicPermission] { return v.topics.all() }
