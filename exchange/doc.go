// Package exchange decides where a message goes: it holds the routing tables of
// the exchange types and nothing else.
//
// A [Table] is immutable. Adding or removing a binding returns a new table that
// shares all but the changed path with the old one, so that any number of
// goroutines may route through a table while its successor is built, and a change costs
// about the same whether the exchange has ten bindings or ten thousand, of whatever keys. Lists that
// matching goes through are made at the first match after a change.
//
// Destinations are names. What they stand for, bindings between exchanges,
// alternate exchanges and the default exchange are the catalog's business.
// The package has no clock, no randomness of its own and no I/O: what is left to
// chance comes with the message.
package exchange
