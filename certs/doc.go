// Package certs keeps the certificate, the key and the authorities that a node shows and
// trusts, and takes new ones from their files while the node runs.
//
// A Source reads its three files at a fixed interval and when it is told to, and compares
// contents: what Kubernetes does to a mounted Secret (a symbolic link that points elsewhere)
// and what an editor does look alike to it. New content is used only if the key fits the
// certificate, the certificate is valid now, and, where both ends must carry a name, if it
// would pass the check of the other end. Otherwise the old content stays in use, the log says
// why, and a counter goes up.
//
// The configurations that ServerConfig and ClientConfig return stay the same for the life of
// a listener or a dialler, and look up what is current at each handshake: crypto/tls users
// such as gRPC keep a copy of them. Sessions are never resumed, so that no ticket outlives a
// certificate authority that was taken away.
//
// docs/adr/0027 tells why it is built this way.
package certs
