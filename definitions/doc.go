// Package definitions carries what a cluster is made of, but its messages, from one cluster to another: users, virtual
// hosts, permissions, limits, policies, exchanges, queues and bindings, in the JSON of RabbitMQ's tools.
//
// [Export] makes a [Document] of a view of the catalog, [Parse] reads one. [Make] compares a document with a view and
// returns a [Plan]: what there is to change, what is left as it is and why; or [Invalid], which tells everything that
// cannot be done before anything is. All that is pure. [Plan.Run] makes the changes, in stages: what others
// refer to comes first.
//
// An import adds and replaces, it never deletes; a second one of the same document changes nothing. A queue or an
// exchange that is there stays as it is, also if the document has it otherwise. The default user stays as it is.
// See docs/adr/0035-definitions.md.
package definitions
