package catalog

import (
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
)

// clusterNameBytesMax bounds the name of a cluster.
const clusterNameBytesMax = 255

// NameCluster gives the cluster another name for people. What nodes and data belong to is its id, which stays.
type NameCluster struct{ Name string }

func (*NameCluster) kind() commandKind { return kindNameCluster }

func (c *NameCluster) fields(f *fields) { str(f, &c.Name) }

func (c *NameCluster) validate() error {
	if c.Name == "" || len(c.Name) > clusterNameBytesMax || !utf8.ValidString(c.Name) {
		return refused("the name of a cluster should be UTF-8 of 1 to %d bytes", clusterNameBytesMax)
	}
	return nil
}

func (c *NameCluster) apply(tx *txn) (Result, *amqp.Error) {
	if tx.name == c.Name {
		return Result{}, nil
	}
	tx.name = c.Name
	return Result{Changed: true}, nil
}

// ClusterName is the name that the cluster was given, its id if it was given none.
func (v *View) ClusterName() string {
	if v.name == "" {
		return v.clusterID
	}
	return v.name
}

// nameFields are the fields of recordName.
func (v *View) nameFields(f *fields) { str(f, &v.name) }
