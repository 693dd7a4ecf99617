// Package issue makes certificate authorities and certificates, for clusters whose operators have no authority of their
// own: `warren certificates`.
//
// A folder keeps what was made:
//
//	authorities/nodes.crt, nodes.key      signs for nodes and for nothing else
//	authorities/clients.crt, clients.key  signs what clients see, and users' certificates
//	nodes/tls.crt, tls.key, ca.crt        what every node has for the other nodes
//	clients/tls.crt, tls.key, ca.crt      what every node has for clients
//	users/NAME/tls.crt, tls.key, ca.crt   what a user logs in with
//
// The names are those of Kubernetes's Secrets of type kubernetes.io/tls. Authorities stay when the command is run again, and
// certificates are made anew: that is a renewal which needs no order, as everybody trusts the new ones already.
package issue
