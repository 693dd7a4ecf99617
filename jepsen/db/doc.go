// Package db holds the systems under test behind one interface: a cluster of brokers
// on this machine whose nodes can be started, stopped, killed and asked.
//
// Warren is the cluster of package test/cluster, placed in a network of package
// network. RabbitMQ is a cluster of Debian's packages in the same network. Another
// system is one more type that implements DB; what it cannot tell or
// do it answers with ErrUnsupported, and nemeses and checkers go without.
package db
