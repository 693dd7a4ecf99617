// Package ctl is `warren ctl`: the verbs of rabbitmqctl that people have in their
// scripts, over the management HTTP API of any node of the cluster. Verbs, options,
// output and exit codes are rabbitmqctl's where it has them.
//
// ctl.go has the command with the options that all verbs share, client.go the requests,
// output.go the answers' form, errors.go the exit codes. The verbs of each topic are in
// a file of their own, which lists them in topics (ctl.go).
//
// Nothing is decided here: what a request may do, and whether its content is valid, is
// the node's affair.
package ctl
