// Package scopes reads what a token permits out of its claims, in the syntax of RabbitMQ's OAuth 2 plugin:
//
//	PREFIX.configure:VHOST/NAME         also write and read; the three parts are patterns
//	PREFIX.write:VHOST/NAME/ROUTINGKEY  for topic exchanges, which need the third part: read for bindings, write for messages
//	PREFIX.tag:TAG
//
// In a pattern * stands for any characters, %2F for a slash (as any byte in that form), + for a space, {vhost} for the name of the virtual host, and {claim} for a
// claim of the token that is a text. What stands for a name is that name and no pattern, so that nobody gets more by what they are called. A scope that is not
// understood permits nothing.
//
// The package is pure: it knows neither keys nor connections. Whoever uses it has checked the token before (package auth/tokens).
package scopes
