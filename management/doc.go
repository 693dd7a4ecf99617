// Package management is RabbitMQ's management HTTP API: JSON under /api, basic
// authentication, the field names and status codes that tools for RabbitMQ know.
//
// [API] is an [net/http.Handler]. It knows the local node through the small interfaces of
// [Config] and the other nodes through calls: a list is asked of every living
// node at once (peers.go), so that any node answers for the cluster. Each
// resource has a file of its own, which registers its routes; auth.go says who
// may do what, answer.go how answers and refusals look.
//
// It owns no state and no goroutine beyond a request's. It decides nothing about
// messages: what changes something goes through the broker or the gateway.
package management
