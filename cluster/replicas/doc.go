// Package replicas does what operators want of queues' replicas: a queue gets a replica on a node or loses one. It decides
// whether that may be, proposes the plan to the catalog, and waits for its end; the groups' leaders carry it out (package
// cluster/group).
//
// RabbitMQ's words are used for what it refuses, too: see [Reason].
package replicas
