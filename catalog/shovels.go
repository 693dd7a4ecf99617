package catalog

import (
	"encoding/json"
	"iter"

	"github.com/warrenmq/warren/amqp"
)

// Shovel is a shovel that somebody wants; what is in it is package shovel's affair.
type Shovel struct {
	Vhost, Name string
	// User put it there.
	User string
	// Value is JSON.
	Value string
	// Since is the revision at which it was put there as it is.
	Since uint64
}

// PutShovel makes a shovel, or replaces one. One that is there with the same value stays the same.
type PutShovel struct{ Vhost, Name, User, Value string }

// DeleteShovel deletes a shovel; with Since, only the one that was put there then.
type DeleteShovel struct {
	Vhost, Name string
	Since       uint64
}

// ShovelBytesMax bounds the value of a shovel, ShovelsMax how many of them there are in the cluster.
const (
	ShovelBytesMax = 64 << 10
	ShovelsMax     = 1000
)

func (*PutShovel) kind() commandKind    { return kindPutShovel }
func (*DeleteShovel) kind() commandKind { return kindDeleteShovel }

func (c *PutShovel) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
	str(f, &c.User)
	str(f, &c.Value)
}

func (c *DeleteShovel) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
	f.u64(&c.Since)
}

func (s *Shovel) fields(f *fields) {
	str(f, &s.Vhost)
	str(f, &s.Name)
	str(f, &s.User)
	str(f, &s.Value)
	f.u64(&s.Since)
}

func (c *PutShovel) validate() error {
	switch {
	case len(c.Value) > ShovelBytesMax:
		return refused("a shovel of %d bytes, the maximum is %d", len(c.Value), ShovelBytesMax)
	case !json.Valid([]byte(c.Value)):
		return refused("a shovel is no JSON")
	}
	return firstError(checkName("vhost name", c.Vhost), checkSome("shovel name", c.Name), checkName("user name", c.User))
}

func (c *DeleteShovel) validate() error {
	return firstError(checkName("vhost name", c.Vhost), checkSome("shovel name", c.Name))
}

func (c *PutShovel) apply(tx *txn) (Result, *amqp.Error) {
	if tx.Vhost(c.Vhost) == nil {
		return Result{}, errNoVhost(c.Vhost)
	}
	old := tx.Shovel(c.Vhost, c.Name)
	switch {
	case old == nil && tx.shovels.len() >= ShovelsMax:
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "there are %d shovels, the maximum", ShovelsMax)
	case old != nil && old.Value == c.Value && old.User == c.User:
		return Result{}, nil
	}
	tx.shovels.put(key(c.Vhost, c.Name), &Shovel{c.Vhost, c.Name, c.User, c.Value, tx.index})
	return Result{Changed: true}, nil
}

func (c *DeleteShovel) apply(tx *txn) (Result, *amqp.Error) {
	s := tx.Shovel(c.Vhost, c.Name)
	if s == nil || c.Since != 0 && s.Since != c.Since {
		return Result{}, nil
	}
	tx.shovels.del(key(c.Vhost, c.Name))
	return Result{Changed: true}, nil
}

func (tx *txn) restoreShovel(f *fields) (problem string) {
	s := new(Shovel)
	if s.fields(f); f.err != nil {
		return ""
	}
	if tx.Vhost(s.Vhost) == nil || tx.Shovel(s.Vhost, s.Name) != nil {
		return "a shovel without a vhost, or twice"
	}
	tx.shovels.put(key(s.Vhost, s.Name), s)
	return ""
}

// Shovel returns a shovel, nil if there is none.
func (v *View) Shovel(vhost, name string) *Shovel {
	s, _ := v.shovels.get(key(vhost, name))
	return s
}

// Shovels walks the shovels by vhost and name.
func (v *View) Shovels() iter.Seq[*Shovel] { return v.shovels.all() }
