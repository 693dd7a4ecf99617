// Package alarm knows which resources the nodes of the cluster are short of. A
// node in alarm anywhere stops publishers everywhere: what they publish may
// have to be stored there. It is told of the local node's alarms, and of the others'
// by messages (docs/formats/node-alarms.md); it sends and measures nothing itself,
// but for [Memory], which reads what the process uses.
package alarm
