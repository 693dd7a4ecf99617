// Package remote asks an HTTP server who may log in, and what they may do, with the requests and answers of RabbitMQ's plugin rabbitmq_auth_backend_http (as
// RabbitMQ 4.3.6 was seen to send and take them).
//
// There are four questions, each with a URL of its own: who may log in (user), open a virtual host (vhost), do something with a queue or an exchange (resource), and
// use a routing key with a topic exchange (topic). Parameters are in the query, or in the body of a form. An answer has the status 200 or 201 and is a text: allow,
// followed by the user's tags where it is about the user, or deny.
//
// A [Server] asks few questions at a time; others wait for their turn, a bounded number, by where they come from, and each no longer than the timeout with the answer.
// Those who want to know the same wait for one request. Answers are remembered for a short time: those about passwords by a keyed hash of user and password, with a
// key that never leaves the process, and those about permissions with the login. While the server does not answer (no connection, no answer in time, a status of 5xx
// or 429) nobody logs in or opens a virtual host anew, and another permission that it has given before counts on for the logins that have it; it is asked again in the background, one question at a
// time, until it answers. Everything else that is no answer permits nothing.
package remote
